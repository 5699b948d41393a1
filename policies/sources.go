package policies

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/loader"
	"github.com/open-policy-agent/opa/v1/storage"
)

//go:embed *.rego
var embedded embed.FS

const (
	// sourceBytesMax and sourceFilesMax bound what an operator's directory or bundle may hold.
	sourceBytesMax = 16 << 20
	sourceFilesMax = 1000
)

// fingerprint tells whether sources changed.
type fingerprint [sha256.Size]byte

// sources are the modules and the data of one revision. Modules are parsed anew for each compilation, which changes them.
type sources struct {
	rego map[string]string // by file name
	data map[string]any
}

// load reads the embedded policy, or what dir has in its place.
func load(dir string) (*sources, error) {
	if dir == "" {
		return loadEmbedded()
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return loadArchive(dir)
	}
	if _, err := os.Stat(filepath.Join(dir, ".manifest")); err == nil {
		b, err := loader.NewFileLoader().WithSkipBundleVerification(true).AsBundle(dir)
		if err != nil {
			return nil, err
		}
		return fromBundle(b)
	}
	return overlay(dir)
}

func loadEmbedded() (*sources, error) {
	src := &sources{rego: map[string]string{}, data: map[string]any{}}
	names, err := fs.Glob(embedded, "*.rego")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := embedded.ReadFile(name)
		if err != nil {
			return nil, err
		}
		src.rego[name] = string(text)
	}
	return src, src.parse()
}

// overlay puts a directory's *.rego over the embedded ones. A replaced file takes its embedded test with it, since that
// speaks of the old one.
func overlay(dir string) (*sources, error) {
	src, err := loadEmbedded()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.rego"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		delete(src.rego, strings.TrimSuffix(filepath.Base(file), ".rego")+"_test.rego")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		src.rego[filepath.Base(file)] = string(text)
	}
	return src, src.parse()
}

func loadArchive(file string) (*sources, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	b, err := bundle.NewReader(bytes.NewReader(raw)).WithSkipBundleVerification(true).
		WithSizeLimitBytes(sourceBytesMax).Read()
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	return fromBundle(&b)
}

func fromBundle(b *bundle.Bundle) (*sources, error) {
	src := &sources{rego: map[string]string{}, data: b.Data}
	if src.data == nil {
		src.data = map[string]any{}
	}
	for _, m := range b.Modules {
		src.rego[strings.TrimPrefix(path.Clean(m.Path), "/")] = string(m.Raw)
	}
	return src, src.parse()
}

// parse fails when a module cannot be read.
func (s *sources) parse() error {
	if len(s.rego) == 0 {
		return errors.New("there are no policies")
	}
	for name, text := range s.rego {
		if _, err := ast.ParseModule(name, text); err != nil {
			return err
		}
	}
	return nil
}

// modules parses every module, tests too. The sources parsed before.
func (s *sources) modules() map[string]*ast.Module {
	out := make(map[string]*ast.Module, len(s.rego))
	for name, text := range s.rego {
		if m, err := ast.ParseModule(name, text); err == nil {
			out[name] = m
		}
	}
	return out
}

// policies parses the modules that are no tests.
func (s *sources) policies() map[string]*ast.Module {
	out := s.modules()
	for name := range out {
		if isTest(name) {
			delete(out, name)
		}
	}
	return out
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.rego") }

func (s *sources) tested() bool {
	for name := range s.rego {
		if isTest(name) {
			return true
		}
	}
	return false
}

func (s *sources) store() storage.Store { return newStore(s.data) }

// fingerprintOf reads all of dir, within the limits.
func fingerprintOf(dir string) (fingerprint, error) {
	var print fingerprint
	if dir == "" {
		return print, nil
	}
	hash := sha256.New()
	files, total := 0, int64(0)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(file) // through links, as mounted configuration has them
		if err != nil || info.IsDir() {
			return err
		}
		files++
		if total += info.Size(); files > sourceFilesMax || total > sourceBytesMax {
			return fmt.Errorf("policies have more than %d files or %d bytes", sourceFilesMax, sourceBytesMax)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%q %d\n", file, len(text))
		hash.Write(text)
		return nil
	})
	hash.Sum(print[:0])
	return print, err
}
