package bench

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"

	"kprobe/internal/vm"
)

// bareStops is the least that a stop at a function's NOP takes: the stub's breakpoint, one
// register written, and "continue" in the same write. Nothing is looked at.
func bareStops(b *testing.B, v *vm.VM) (off func(), hits func() uint64) {
	b.Helper()
	k := dialGuest(b, v)
	site, ok := k.Kernel().Table().Addr(guestFunc)
	if err := k.Close(); err != nil || !ok {
		b.Fatal("no "+guestFunc, err)
	}
	stub := dialStub(b, v)
	stub.ask(b, fmt.Sprintf("Z0,%x,1", uint64(site)))
	pc := binary.LittleEndian.AppendUint64(nil, uint64(site+5))
	onward := packet(fmt.Sprintf("P10=%x", pc)) + packet("c")
	stub.say(b, packet("c"))
	var n uint64
	over := make(chan error)
	leaving := make(chan struct{})
	go func() {
		for {
			answer, err := stub.read()
			select {
			case <-leaving:
				over <- err
				return
			default:
			}
			switch {
			case err != nil:
				over <- err
				return
			case strings.HasPrefix(answer, "T05"):
				n++
				if _, err := stub.line.Write([]byte(onward)); err != nil {
					over <- err
					return
				}
			}
		}
	}()
	off = func() {
		close(leaving)
		stub.say(b, "\x03")
		if err := <-over; err != nil {
			b.Fatal(err)
		}
		// Answers to what was said before may still come.
		stub.say(b, packet(fmt.Sprintf("z0,%x,1", uint64(site)))+packet("qC"))
		stub.readUntil(b, "QC")
		stub.say(b, packet("D;1"))
		stub.readUntil(b, "OK")
		stub.line.Close()
	}
	return off, func() uint64 { return n }
}

type stub struct {
	line net.Conn
	in   *bufio.Reader
}

// dialStub connects, and has the stub tell what registers there are: before that it knows
// none of them by number.
func dialStub(b *testing.B, v *vm.VM) *stub {
	b.Helper()
	line, err := net.Dial("unix", strings.TrimPrefix(v.Stub(), "unix:"))
	if err != nil {
		b.Fatal(err)
	}
	s := &stub{line, bufio.NewReader(line)}
	s.say(b, packet("qSupported:multiprocess+"))
	s.readUntil(b, "PacketSize")
	s.ask(b, "qXfer:features:read:target.xml:0,ffb")
	return s
}

func packet(data string) string {
	var sum byte
	for i := range len(data) {
		sum += data[i]
	}
	return fmt.Sprintf("$%s#%02x", data, sum)
}

func (s *stub) say(b *testing.B, text string) {
	b.Helper()
	if _, err := s.line.Write([]byte(text)); err != nil {
		b.Fatal(err)
	}
}

// read is the next packet. It is acknowledged by what is said next.
func (s *stub) read() (string, error) {
	if _, err := s.in.ReadString('$'); err != nil {
		return "", err
	}
	data, err := s.in.ReadString('#')
	if err == nil {
		_, err = s.in.Discard(2)
	}
	return strings.TrimSuffix(data, "#"), err
}

// readUntil skips what comes before an answer.
func (s *stub) readUntil(b *testing.B, prefix string) {
	b.Helper()
	for answer := ""; !strings.HasPrefix(answer, prefix); {
		var err error
		if answer, err = s.read(); err != nil {
			b.Fatal(err)
		}
	}
}

func (s *stub) ask(b *testing.B, data string) {
	b.Helper()
	s.say(b, packet(data))
	if answer, err := s.read(); err != nil || answer == "" || answer[0] == 'E' {
		b.Fatalf("%.30s: %q, %v", data, answer, err)
	}
}
