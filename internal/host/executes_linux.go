package host

import (
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// held is how long a process is held at most that is about to execute a file.
const held = 2 * time.Second

// Executes tells of each process that is about to execute one of some files, and has it wait until seen returns, or a short while:
// fanotify(7), which root may have. Nothing of this process is told or held. When this process ends, or is closed, all go on.
func Executes(files []string, seen func(pid int)) (end func(), err error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	marked := false
	for _, name := range files {
		if errMark := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC_PERM, unix.AT_FDCWD, name); errMark == nil {
			marked = true
		} else {
			err = errMark
		}
	}
	var ends [2]int
	if marked {
		err = unix.Pipe2(ends[:], unix.O_CLOEXEC)
	}
	if err != nil && (!marked || ends[1] == 0) {
		unix.Close(fd)
		return nil, err
	}
	q := &questions{fd: fd}
	go func() {
		defer unix.Close(ends[0])
		defer q.close()
		for {
			wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(ends[0])}}
			if _, err := unix.Poll(wait, -1); err != nil && err != unix.EINTR || wait[1].Revents != 0 {
				return
			}
			q.read(seen)
		}
	}()
	return func() { unix.Close(ends[1]) }, nil
}

// questions are those that are asked at a file descriptor.
type questions struct {
	mu sync.Mutex
	fd int // -1: closed, which answers all
}

func (q *questions) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	unix.Close(q.fd)
	q.fd = -1
}

func (q *questions) read(seen func(pid int)) {
	b := make([]byte, 4096)
	n, err := unix.Read(q.fd, b)
	if err != nil {
		return // it was interrupted, or there is nothing
	}
	for rest := b[:n]; len(rest) >= unix.FAN_EVENT_METADATA_LEN; {
		size := binary.NativeEndian.Uint32(rest)
		of, pid := int32(binary.NativeEndian.Uint32(rest[16:])), int(int32(binary.NativeEndian.Uint32(rest[20:])))
		rest = rest[min(int(size), len(rest)):]
		if of >= 0 {
			q.hold(of, pid, seen)
		}
	}
}

// hold lets a process go on when it was seen, or has waited for long enough.
func (q *questions) hold(of int32, pid int, seen func(pid int)) {
	var once sync.Once
	answer := func() {
		once.Do(func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.fd >= 0 {
				b := binary.NativeEndian.AppendUint32(nil, uint32(of))
				_, _ = unix.Write(q.fd, binary.NativeEndian.AppendUint32(b, unix.FAN_ALLOW)) // one that has been killed needs no answer
			}
			unix.Close(int(of))
		})
	}
	if pid <= 0 || pid == os.Getpid() {
		answer()
		return
	}
	late := time.AfterFunc(held, answer)
	go func() {
		seen(pid)
		late.Stop()
		answer()
	}()
}
