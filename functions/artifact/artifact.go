// Package artifact packs, checks, keeps and unpacks the code of functions: a zip with an executable named bootstrap at its root.
package artifact

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/handfast-mq/handfast/schema"
)

// Bootstrap is what a node runs of an artifact.
const Bootstrap = "bootstrap"

const (
	filesMax     = 20_000 // of one artifact; what node_modules can hold
	nameBytesMax = 1024
)

// Sum is the name of an artifact: its SHA-256 in hex.
func Sum(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:])
}

// Check refuses what could not be unpacked and run: no zip, entries that would leave the directory, links, bombs, no executable bootstrap. The
// contents are read once, since the sizes that a zip states can be lies.
func Check(archive []byte) error {
	return walk(archive, func(f *zip.File, name string, content io.Reader) (int64, error) {
		return io.Copy(io.Discard, content)
	})
}

// walk hands the files of an archive to take, in order, each bounded by what is left of the limit.
func walk(archive []byte, take func(f *zip.File, name string, content io.Reader) (int64, error)) error {
	if len(archive) > schema.ArtifactBytesMax {
		return schema.Errorf(schema.TooLarge, "the zip has more than %d MiB", schema.ArtifactBytesMax>>20)
	}
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return schema.WrapError(schema.Invalid, err, "the code is not a zip file")
	}
	if len(r.File) > filesMax {
		return schema.Errorf(schema.Invalid, "the zip has more than %d files", filesMax)
	}
	names, err := checkEntries(r.File)
	if err != nil {
		return err
	}
	left := int64(schema.ArtifactUnpackedMax)
	for i, f := range r.File {
		if names[i] == "" {
			continue
		}
		if left, err = walkFile(f, names[i], left, take); err != nil {
			return err
		}
	}
	return nil
}

// checkEntries returns the clean name of each entry, "" for a folder. Nothing was unpacked yet when it refuses.
func checkEntries(entries []*zip.File) ([]string, error) {
	names, files, folders := make([]string, len(entries)), map[string]bool{}, map[string]bool{}
	stated := uint64(0)
	for i, f := range entries {
		name, err := checkEntry(f)
		if err != nil {
			return nil, err
		}
		if stated += min(f.UncompressedSize64, schema.ArtifactUnpackedMax+1); stated > schema.ArtifactUnpackedMax {
			return nil, errUnpacked
		}
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			folders[above] = true
		}
		if f.Mode().IsDir() {
			folders[name] = true
			continue
		}
		if files[name] {
			return nil, schema.Errorf(schema.Invalid, "the zip has %q twice", clip(name))
		}
		files[name], names[i] = true, name
	}
	for folder := range folders {
		if files[folder] {
			return nil, schema.Errorf(schema.Invalid, "the zip has %q as a file and as a folder", clip(folder))
		}
	}
	if !files[Bootstrap] {
		return nil, schema.Errorf(schema.Invalid, "the zip has no file named bootstrap at its root")
	}
	return names, nil
}

func walkFile(f *zip.File, name string, left int64, take func(*zip.File, string, io.Reader) (int64, error)) (int64, error) {
	content, err := f.Open()
	if err != nil {
		return 0, schema.WrapError(schema.Invalid, err, "the zip's entry %q cannot be read", clip(name))
	}
	defer content.Close()
	n, err := take(f, name, io.LimitReader(content, left+1))
	switch {
	case n > left:
		return 0, errUnpacked
	case errors.Is(err, zip.ErrChecksum), errors.Is(err, zip.ErrFormat), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, schema.WrapError(schema.Invalid, err, "the zip's entry %q is damaged", clip(name))
	}
	return left - n, err
}

// checkEntry returns an entry's clean name, or refuses it.
func checkEntry(f *zip.File) (string, error) {
	name, mode := f.Name, f.Mode()
	switch {
	case len(name) > nameBytesMax:
		return "", schema.Errorf(schema.Invalid, "the zip has a name of more than %d bytes", nameBytesMax)
	case strings.ContainsAny(name, "\\\x00"), path.IsAbs(name), !filepath.IsLocal(strings.TrimSuffix(name, "/")):
		return "", schema.Errorf(schema.Invalid, "the zip's entry %q would leave the function's directory", clip(name))
	case !mode.IsDir() && !mode.IsRegular():
		return "", schema.Errorf(schema.Invalid, "the zip's entry %q is a link or a device", clip(name))
	}
	clean := path.Clean(name)
	if clean == Bootstrap && (mode.IsDir() || mode.Perm()&0o111 == 0) {
		return "", schema.Errorf(schema.Invalid, "bootstrap is not an executable file: chmod +x it before it is packed")
	}
	return clean, nil
}

var errUnpacked = schema.Errorf(schema.TooLarge, "the zip unpacks to more than %d MiB", schema.ArtifactUnpackedMax>>20)

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 80)], "?") }

// Unpack writes an archive to a directory that does not exist yet: whole, or not at all.
func Unpack(archive []byte, dir string) error {
	half, err := os.MkdirTemp(filepath.Dir(dir), ".unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half)
	err = walk(archive, func(f *zip.File, name string, content io.Reader) (int64, error) {
		to := filepath.Join(half, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return 0, err
		}
		mode := fs.FileMode(0o444)
		if f.Mode().Perm()&0o111 != 0 {
			mode = 0o555
		}
		return writeFile(to, mode, content)
	})
	if err != nil {
		return err
	}
	if err := os.Chmod(half, 0o755); err != nil {
		return err
	}
	return os.Rename(half, dir)
}

func writeFile(to string, mode fs.FileMode, content io.Reader) (n int64, err error) {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(out, content)
	return n, errors.Join(err, out.Close())
}

// Pack makes the zip of a directory. Links to files are followed, since a zip must not hold them.
func Pack(dir string) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if out.Len() > schema.ArtifactBytesMax {
			return schema.Errorf(schema.TooLarge, "the zip has more than %d MiB", schema.ArtifactBytesMax>>20)
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		return packFile(w, file, filepath.ToSlash(name))
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), Check(out.Bytes())
}

func packFile(w *zip.Writer, file, name string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return schema.Errorf(schema.Invalid, "%s is not a regular file", name)
	}
	// No time goes in, so that the same files are the same artifact.
	h := &zip.FileHeader{Name: name, Method: zip.Deflate}
	h.SetMode(info.Mode().Perm())
	entry, err := w.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = io.Copy(entry, in)
	return err
}

// Save keeps an archive in the store and returns its name. Its last chunk is an empty one when its size is a multiple of a chunk's, so that
// the end is known.
func Save(ctx context.Context, store schema.Artifacts, archive []byte) (string, error) {
	sum := Sum(archive)
	for chunk := 0; ; chunk++ {
		piece := archive[min(chunk*schema.ArtifactChunkBytes, len(archive)):min((chunk+1)*schema.ArtifactChunkBytes, len(archive))]
		if err := store.PutArtifact(ctx, sum, chunk, piece); err != nil {
			return "", err
		}
		if len(piece) < schema.ArtifactChunkBytes {
			return sum, nil
		}
	}
}

// Load reads an archive from the store and holds it against its name.
func Load(ctx context.Context, store schema.Artifacts, sum string) ([]byte, error) {
	var archive []byte
	for chunk := 0; len(archive) <= schema.ArtifactBytesMax; chunk++ {
		piece, there, err := store.Artifact(ctx, sum, chunk)
		switch {
		case err != nil:
			return nil, err
		case !there:
			return nil, schema.Errorf(schema.Internal, "the function's code is not in the store")
		}
		archive = append(archive, piece...)
		if len(piece) < schema.ArtifactChunkBytes {
			break
		}
	}
	if Sum(archive) != sum {
		return nil, schema.Errorf(schema.Internal, "the function's code in the store is damaged")
	}
	return archive, nil
}
