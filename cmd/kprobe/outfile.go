package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
)

// outFile is a file that a command writes to once its probes are in place. What comes before that waits: where the command comes to nothing, there is
// no new file, and one that was there has what it had.
type outFile struct {
	mu      sync.Mutex
	f       *os.File
	fresh   bool // it was not there before
	started bool
	waits   []byte
}

// newOutFile opens it, so that it is known whether it can be written. Errors: the system's.
func newOutFile(name string) (*outFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	fresh := err == nil
	if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	}
	if err != nil {
		return nil, err
	}
	return &outFile{f: f, fresh: fresh}, nil
}

// create opens what the command writes to, which is started when its probes are in place; standard output, for no name. end closes it, and joins what that
// says to the command's error.
func (r *traceRequest) create(file string) (to io.Writer, end func(*error), err error) {
	if file == "" {
		return os.Stdout, func(*error) {}, nil
	}
	if r.out, err = newOutFile(file); err != nil {
		return nil, nil, err
	}
	return r.out, func(said *error) {
		if failed := r.out.close(); failed != nil {
			*said = errors.Join(*said, failed)
		}
	}, nil
}

func (o *outFile) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.started {
		o.waits = append(o.waits, b...)
		return len(b), nil
	}
	return o.f.Write(b)
}

// start writes what has waited, in place of what was there.
func (o *outFile) start() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started {
		return nil
	}
	if fi, err := o.f.Stat(); err == nil && fi.Mode().IsRegular() {
		if err := o.f.Truncate(0); err != nil {
			return err
		}
	}
	o.started = true
	_, err := o.f.Write(o.waits)
	o.waits = nil
	return err
}

// close leaves what was written. Where nothing was started, it leaves things as they were.
func (o *outFile) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.f.Close()
	if !o.started && o.fresh {
		err = errors.Join(err, os.Remove(o.f.Name()))
	}
	return err
}
