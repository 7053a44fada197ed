//go:build linux || darwin

package host

import "golang.org/x/sys/unix"

// Keys has a terminal give every key at once, and show none (termios(3)). back puts it back as it was.
func Keys(fd uintptr) (back func() error, err error) {
	old, err := unix.IoctlGetTermios(int(fd), getTermios)
	if err != nil {
		return nil, err
	}
	keys := *old
	keys.Lflag &^= unix.ICANON | unix.ECHO
	keys.Iflag &^= unix.ICRNL
	keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(fd), setTermios, &keys); err != nil {
		return nil, err
	}
	return func() error { return unix.IoctlSetTermios(int(fd), setTermios, old) }, nil
}

// Size is a terminal's, in characters: 80 by 24 where it does not tell.
func Size(fd uintptr) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}
