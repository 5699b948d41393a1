package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// format counts the layouts of the directory. A release that changes the layout raises it and reads the former one.
const format = 1

// checkFormat refuses a directory of a newer format, and writes the format into a new one.
func checkFormat(fs vfs.FS, dir string) error {
	path := fs.PathJoin(dir, "format")
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return writeFormat(fs, dir, path)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	switch {
	case err != nil:
		return fmt.Errorf("%s does not name a format: %q", path, b)
	case n > format:
		return fmt.Errorf("data directory %s has format %d, and this version knows formats up to %d: start the newer version", dir, n, format)
	}
	return nil
}

// writeFormat makes the file whole or not at all.
func writeFormat(fs vfs.FS, dir, path string) error {
	f, err := fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	_, err = fmt.Fprintln(f, format)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fs.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// syncParents makes the entries durable that lead to dir. Those further up may belong to others, and mostly are old:
// what cannot be synced there is let be.
func syncParents(fs vfs.FS, dir string) error {
	parent := fs.PathDir(dir)
	err := syncDir(fs, parent)
	for d := parent; fs.PathDir(d) != d; d = fs.PathDir(d) {
		_ = syncDir(fs, fs.PathDir(d))
	}
	return err
}
