package gdbremote

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Files where the stub runs (GDB manual, "Host I/O Packets"). gdbserver has them;
// QEMU's user mode since 8.1, and not the one that was tried.

// mostFile bounds the bytes that are read of a file.
const mostFile = 1 << 29

// hostIO makes a request whose answer is F and a number, and gives that and the attached bytes. The
// stub's own error numbers are no host's, so a refused file counts as not there. Errors:
// errUnknown, fs.ErrNotExist, wrapped.
func (t *Target) hostIO(request string) (n int, attached string, err error) {
	answer, err := t.c.ask("vFile:" + request)
	if err != nil {
		return 0, "", err
	}
	text, ok := strings.CutPrefix(answer, "F")
	if !ok {
		return 0, "", refused("vFile", answer)
	}
	number, attached, _ := strings.Cut(text, ";")
	if number, _, failed := strings.Cut(number, ","); failed {
		return 0, "", fmt.Errorf("%w (the stub's error %s)", fs.ErrNotExist, number)
	}
	v, err := strconv.ParseInt(number, 16, 32)
	if err != nil || v < 0 {
		return 0, "", refused("vFile", answer)
	}
	return int(v), attached, nil
}

// file reads a file there, whole.
func (t *Target) file(name string) ([]byte, error) {
	fd, _, err := t.hostIO(fmt.Sprintf("open:%x,0,0", name))
	if err != nil {
		return nil, fmt.Errorf("%s, where the stub runs: %w", name, err)
	}
	defer t.hostIO(fmt.Sprintf("close:%x", fd))
	var b bytes.Buffer
	for b.Len() < mostFile {
		// In the worst case each byte is two.
		n, part, err := t.hostIO(fmt.Sprintf("pread:%x,%x,%x", fd, t.has.packet/2-16, b.Len()))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s, where the stub runs: %w", name, err)
		case n == 0:
			return b.Bytes(), nil
		case n != len(part):
			return nil, fmt.Errorf("%s, where the stub runs: %d bytes of %d", name, len(part), n)
		}
		b.WriteString(part)
	}
	return nil, fmt.Errorf("%s, where the stub runs, is too large", name)
}

// readlink is the path that a symbolic link there leads to.
func (t *Target) readlink(name string) (string, error) {
	_, to, err := t.hostIO("readlink:" + hex.EncodeToString([]byte(name)))
	return to, err
}

// realpath follows the symbolic links of a path there; "" if there is no such file.
func (t *Target) realpath(name string) string {
	done, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		next := path.Join(done, part)
		link, err := t.readlink(next)
		if err != nil {
			done = next
			continue
		}
		if links++; links > 40 {
			return ""
		}
		if path.IsAbs(link) {
			done = "/"
		}
		rest = append(strings.Split(link, "/"), rest...)
	}
	fd, _, err := t.hostIO(fmt.Sprintf("open:%x,0,0", done))
	if err != nil {
		return ""
	}
	t.hostIO(fmt.Sprintf("close:%x", fd))
	return done
}

// lacks tells an error that says that the stub has no such request.
func lacks(err error) bool { return errors.Is(err, errUnknown) }
