package memcg

import (
	"os"
	"sync"
	"syscall"
)

// files are those of groups that were read last, open: each change of a process asks for the same ones, and to find a file by its name
// takes many times what it takes to read it.
// That holds as long as anybody uses them; a program that has let go of all processes has none of their files open.
type files struct {
	mu    sync.Mutex
	open  map[string]int // descriptors
	users int
}

// kept are this process's.
var kept = files{open: make(map[string]int)}

// Use says that groups are going to be looked at again and again.
func Use() { kept.use() }

// Leave ends a Use.
func Leave() { kept.leave() }

func (k *files) use() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.users++
}

func (k *files) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	for name := range k.open {
		k.drop(name)
	}
}

// most is how many are kept: those of two groups that lie deep.
const most = 32

// read reads a file, of size bytes or a few more. What it says is of this moment. Of a group that is gone no file can be read any more, and
// a group of the same name has another.
func (k *files) read(name string, size int) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if fd, ok := k.open[name]; ok {
		if b, err := content(fd, size); err == nil {
			return b, nil
		}
		k.drop(name)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	for other := range k.open {
		if len(k.open) < most {
			break
		}
		k.drop(other)
	}
	if k.users > 0 {
		k.open[name] = fd
	} else {
		defer syscall.Close(fd)
	}
	return content(fd, size)
}

func (k *files) drop(name string) {
	syscall.Close(k.open[name])
	delete(k.open, name)
}

// content is all that a file says. The kernel makes it as one piece, which is cut only where there is no room for it.
func content(fd, size int) ([]byte, error) {
	for {
		b := make([]byte, size)
		n, err := syscall.Pread(fd, b, 0)
		if err != nil || n < size {
			return b[:max(n, 0)], err
		}
		size *= 2
	}
}
