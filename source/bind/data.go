package bind

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"kprobe/source"
	"kprobe/symbol"
)

// data is a file's debug data, or why there is none.
type data struct {
	file *source.File
	err  error
}

// Elsewhere finds debug data that is not on this machine, by build ID; nil: nowhere. It is set before
// anything is asked for, or never.
var Elsewhere func(buildID []byte) (io.ReaderAt, error)

// Of is the debug data of a mapped file. It is read once, whoever asks.
// Errors: source.ErrNone, wrapped; else what is wrong with it.
func Of(f *symbol.File) (*source.File, error) { return of(f, Elsewhere) }

// Here is Of with what lies on this machine alone.
func Here(f *symbol.File) (*source.File, error) { return of(f, nil) }

func of(f *symbol.File, elsewhere func(id []byte) (io.ReaderAt, error)) (*source.File, error) {
	type key struct{ elsewhere bool }
	d := f.Memo(key{elsewhere != nil}, func() any {
		opt := source.Options{
			Alternate: func(name string, id []byte) (io.ReaderAt, error) { return alternate(f.Path(), name, id) },
			Split:     func(dir, name string) (io.ReaderAt, error) { return split(f.Path(), dir, name) },
		}
		if r := f.DebugReader(); r != nil {
			opt.Debug = r
		}
		file, err := source.Open(f.Reader(), opt)
		if id := f.BuildID(); errors.Is(err, source.ErrNone) && elsewhere != nil && len(id) > 0 {
			r, failed := elsewhere(id)
			if failed != nil {
				return data{nil, fmt.Errorf("%w; %v", err, failed)}
			}
			opt.Debug = r
			file, err = source.Open(f.Reader(), opt)
		}
		return data{file, err}
	}).(data)
	return d.file, d.err
}

// alternate opens the file that dwz has put what several files share in: by build ID, or by its name
// beside the file's.
func alternate(of, name string, id []byte) (io.ReaderAt, error) {
	var err error
	if len(id) > 1 {
		h := hex.EncodeToString(id)
		var r *os.File
		if r, err = os.Open(filepath.Join("/usr/lib/debug/.build-id", h[:2], h[2:]+".debug")); err == nil {
			return r, nil
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(of), name)
	}
	r, err := os.Open(name)
	if err != nil && Elsewhere != nil && len(id) > 1 {
		return Elsewhere(id)
	}
	return r, err
}

// split opens what a file's unit was split off to: where the compiler wrote it, or beside the file, to which it may have
// been moved; of no name, the package of them all. That it is of the same compilation, its number tells.
func split(of, dir, name string) (io.ReaderAt, error) {
	if name == "" {
		return regular(of + ".dwp")
	}
	at := name
	if !filepath.IsAbs(at) {
		at = filepath.Join(dir, at)
	}
	r, err := regular(at)
	if err != nil {
		if beside, missing := regular(filepath.Join(filepath.Dir(of), filepath.Base(name))); missing == nil {
			return beside, nil
		}
	}
	return r, err
}

// regular opens a file, and nothing that would keep its reader waiting.
func regular(name string) (io.ReaderAt, error) {
	r, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := r.Stat(); err != nil || !st.Mode().IsRegular() {
		r.Close()
		return nil, fmt.Errorf("%s: not a file", name)
	}
	return r, nil
}
