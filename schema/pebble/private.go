package pebble

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// privateFS makes files that their owner alone can read: messages are nobody else's business.
type privateFS struct{ vfs.FS }

func private(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, 0o600); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (p privateFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, c)
	return private(f, err, name)
}

func (p privateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := p.FS.OpenReadWrite(name, c, o...)
	return private(f, err, name)
}

func (p privateFS) MkdirAll(dir string, _ os.FileMode) error { return p.FS.MkdirAll(dir, 0o700) }

func (p privateFS) Lock(name string) (io.Closer, error) {
	c, err := p.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	return c, os.Chmod(name, 0o600)
}

// Unwrap lets Pebble find the file system below.
func (p privateFS) Unwrap() vfs.FS { return p.FS }
