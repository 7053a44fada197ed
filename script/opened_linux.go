package script

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// opens tells when somebody opens one of some files, as who executes it or maps it does: inotify(7). close ends it. Where that cannot be
// told, nothing ever is. all says that it is told of each file.
func opens(files []string) (opened <-chan struct{}, all bool, close func()) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, false, func() {}
	}
	var watches []uint32
	for _, name := range files {
		if w, err := unix.InotifyAddWatch(fd, name, unix.IN_OPEN); err == nil { // a file that is not there is opened by nobody
			watches = append(watches, uint32(w))
		}
	}
	if len(watches) == 0 {
		unix.Close(fd)
		return nil, false, func() {}
	}
	var over atomic.Bool
	c := make(chan struct{}, 1)
	go func() {
		defer unix.Close(fd)
		for b := make([]byte, 4096); !over.Load(); {
			if _, err := unix.Read(fd, b); err != nil && err != unix.EINTR {
				return
			}
			select {
			case c <- struct{}{}:
			default: // that is told already
			}
		}
	}()
	return c, len(watches) == len(files), func() {
		over.Store(true)
		for _, w := range watches {
			unix.InotifyRmWatch(fd, w) // which is an event, too
		}
	}
}
