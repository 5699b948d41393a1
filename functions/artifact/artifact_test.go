package artifact

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

type entry struct {
	name, content string
	mode          fs.FileMode
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(e.content))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bomb is an archive of so many entries of 64 MiB of zeros that state another size.
func bomb(t *testing.T, stated uint64, entries int) []byte {
	t.Helper()
	var packed, out bytes.Buffer
	f, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(make([]byte, 64<<20))
	f.Close()
	w := zip.NewWriter(&out)
	for i := range entries {
		h := &zip.FileHeader{Name: fmt.Sprint(i), Method: zip.Deflate, CompressedSize64: uint64(packed.Len()), UncompressedSize64: stated}
		h.SetMode(0o644)
		raw, err := w.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		raw.Write(packed.Bytes())
	}
	h := &zip.FileHeader{Name: boot.name}
	h.SetMode(boot.mode)
	w.CreateHeader(h)
	w.Close()
	return out.Bytes()
}

var boot = entry{"bootstrap", "#!/bin/sh\n", 0o755}

func TestBadArchives(t *testing.T) {
	damaged := archive(t, entry{"bootstrap", strings.Repeat("#!/bin/sh\n", 50), 0o755})
	damaged[45] ^= 0xff
	for name, c := range map[string]struct {
		archive []byte
		kind    schema.Kind
		words   string
	}{
		"no zip":          {[]byte("hello"), schema.Invalid, "not a zip"},
		"empty":           {nil, schema.Invalid, "not a zip"},
		"no bootstrap":    {archive(t, entry{"main", "", 0o755}), schema.Invalid, "no file named bootstrap"},
		"below":           {archive(t, entry{"bin/bootstrap", "", 0o755}), schema.Invalid, "no file named bootstrap"},
		"not executable":  {archive(t, entry{"bootstrap", "", 0o644}), schema.Invalid, "chmod +x"},
		"directory":       {archive(t, entry{"bootstrap/", "", fs.ModeDir | 0o755}), schema.Invalid, "executable file"},
		"absolute":        {archive(t, boot, entry{"/etc/x", "", 0o644}), schema.Invalid, "leave"},
		"dots":            {archive(t, boot, entry{"a/../../x", "", 0o644}), schema.Invalid, "leave"},
		"backslash":       {archive(t, boot, entry{`..\x`, "", 0o644}), schema.Invalid, "leave"},
		"link":            {archive(t, boot, entry{"l", "/etc/passwd", fs.ModeSymlink | 0o777}), schema.Invalid, "link"},
		"device":          {archive(t, boot, entry{"d", "", fs.ModeDevice | 0o666}), schema.Invalid, "link or a device"},
		"twice":           {archive(t, boot, boot), schema.Invalid, "twice"},
		"file as folder":  {archive(t, boot, entry{"a", "", 0o644}, entry{"a/b", "", 0o644}), schema.Invalid, "as a file and as a folder"},
		"folder as file":  {archive(t, boot, entry{"a/b", "", 0o644}, entry{"a", "", 0o644}), schema.Invalid, "as a file and as a folder"},
		"damaged":         {damaged, schema.Invalid, ""},
		"bomb":            {bomb(t, 64<<20, 4), schema.TooLarge, "250 MiB"},
		"lying bomb":      {bomb(t, 1, 5), schema.Invalid, "damaged"},
		"more than 50 MB": {make([]byte, schema.ArtifactBytesMax+1), schema.TooLarge, "50 MiB"},
	} {
		if err := Check(c.archive); schema.KindOf(err) != c.kind {
			t.Errorf("%s: checked as %v, want %v", name, err, c.kind)
		}
		parent := t.TempDir()
		err := Unpack(c.archive, filepath.Join(parent, "code"))
		if schema.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %v %q", name, err, c.kind, c.words)
		}
		if left, _ := os.ReadDir(parent); len(left) > 0 {
			t.Errorf("%s: %v is left behind", name, left)
		}
	}
}

func TestPackSaveLoadUnpack(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode fs.FileMode) {
		file := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(file), 0o755)
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("bootstrap", "#!/bin/sh\necho hello\n", 0o755)
	write("lib/data.txt", "data", 0o644)
	packed, err := Pack(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Pack(dir)
	if !bytes.Equal(packed, again) {
		t.Error("the same files are not the same artifact")
	}
	to := filepath.Join(t.TempDir(), "code")
	if err := Unpack(packed, to); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(to, "lib/data.txt")); string(got) != "data" {
		t.Errorf("unpacked %q", got)
	}
	if info, err := os.Stat(filepath.Join(to, "bootstrap")); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("bootstrap is %v %v", info.Mode(), err)
	}
	os.Remove(filepath.Join(dir, "bootstrap"))
	if _, err := Pack(dir); schema.KindOf(err) != schema.Invalid {
		t.Errorf("a directory without bootstrap: %v", err)
	}
}
