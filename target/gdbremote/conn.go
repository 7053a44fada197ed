package gdbremote

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"kprobe/internal/host"
	"kprobe/target"
)

// conn is the line to a stub. A goroutine of its own sorts the packets that come in into answers
// and stop reports; everything else is done by one caller at a time, between enter and leave.
type conn struct {
	line     net.Conn
	patience time.Duration

	mu      sync.Mutex
	change  sync.Cond // of anything below
	busy    bool      // a caller is between enter and leave
	asking  bool      // and waits for an answer
	answers []string
	stops   []string
	err     error // why nothing will come in any more
	ended   bool  // that is since the stub has hung up
	silent  bool  // acknowledgements are not wanted
	ahead   bool  // the stub takes several requests in one write
	last    []byte
}

// dial connects to unix:PATH, tcp:HOST:PORT or HOST:PORT.
func dial(address string, patience time.Duration) (*conn, error) {
	network, where, ok := strings.Cut(address, ":")
	if !ok || network != "unix" && network != "tcp" {
		network, where = "tcp", address
	}
	line, err := net.DialTimeout(network, where, patience)
	if err != nil {
		return nil, err
	}
	c := &conn{line: line, patience: patience}
	c.change.L = &c.mu
	go c.receive()
	return c, nil
}

// receive sorts the packets that come in, until the line is dead.
func (c *conn) receive() {
	r := bufio.NewReaderSize(c.line, 1<<16)
	for {
		kind, data, err := next(r)
		c.mu.Lock()
		switch {
		case err != nil:
			if c.err == nil {
				c.ended = true
				c.err = fmt.Errorf("%w: the connection to its stub has ended (%v)", target.ErrGone, err)
			}
		case kind == tokenNak:
			c.write(c.last)
		case kind == tokenBroken:
			c.acknowledge("-")
		case kind == tokenPacket:
			c.acknowledge("+")
			c.sort(data)
		}
		dead := c.err != nil
		c.change.Broadcast()
		c.mu.Unlock()
		if dead {
			c.line.Close()
			return
		}
	}
}

// sort: a stop may be reported at any time while the target runs, and, by QEMU, once
// before the first answer. No answer to a question of ours begins like one.
func (c *conn) sort(data string) {
	switch {
	case data != "" && strings.ContainsRune("TSWXwN", rune(data[0])):
		c.stops = append(c.stops, data)
	case c.asking:
		c.answers = append(c.answers, data)
	case strings.HasPrefix(data, "O"): // text that the target prints on its stub's console
	default:
		c.stops = append(c.stops, data) // the answer E.. to a request to go on
	}
}

func (c *conn) acknowledge(with string) {
	if !c.silent {
		c.write([]byte(with))
	}
}

func (c *conn) write(b []byte) {
	c.line.SetWriteDeadline(time.Now().Add(c.patience))
	if _, err := c.line.Write(b); err != nil && c.err == nil {
		c.err = fmt.Errorf("%w: %v", target.ErrGone, err)
	}
}

// enter begins exclusive use. The rest of this file's functions need it.
func (c *conn) enter() {
	c.mu.Lock()
	for c.busy {
		c.change.Wait()
	}
	c.busy = true
	c.mu.Unlock()
}

func (c *conn) leave() {
	c.mu.Lock()
	c.busy = false
	c.change.Broadcast()
	c.mu.Unlock()
}

// await takes the first entry of a queue. A stub that does not answer in time is given up: a later
// packet would be taken for the answer to something else.
func (c *conn) await(queue *[]string, what string) (string, error) {
	end := time.Now().Add(c.patience)
	alarm := time.AfterFunc(c.patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.change.Broadcast()
	})
	defer alarm.Stop()
	for len(*queue) == 0 {
		if c.err == nil && !time.Now().Before(end) {
			c.err = fmt.Errorf("%w: no answer to %.40q in %v", target.ErrGone, what, c.patience)
			c.line.Close()
		}
		if c.err != nil {
			return "", c.err
		}
		c.change.Wait()
	}
	first := (*queue)[0]
	*queue = (*queue)[1:]
	return first, nil
}

// send sends a request whose answer, if there is one, is a stop report.
func (c *conn) send(request string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.put(request)
}

func (c *conn) put(requests ...string) error {
	if c.err != nil {
		return c.err
	}
	c.last = c.last[:0]
	for _, r := range requests {
		c.last = frame(c.last, r)
	}
	c.write(c.last)
	return c.err
}

// peer is the process that listens at the other end of a unix socket; 0 where
// that cannot be known.
func (c *conn) peer() int {
	line, ok := c.line.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := line.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	raw.Control(func(fd uintptr) {
		if p, err := host.Peer(fd); err == nil {
			pid = p
		}
	})
	return pid
}

// interrupt asks the target to stop. There is no answer but the stop report.
func (c *conn) interrupt() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.write([]byte{3})
	}
	return c.err
}

// whileDeaf calls f while a stub at a unix socket reads nothing: it has read all that it was sent,
// and has not reported a stop, which it goes on from only when that is acknowledged. stopped tells
// that it has reported one; then, and while there is something to read, f is not called.
func (c *conn) whileDeaf(f func() error) (stopped bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stops) > 0 || c.err != nil {
		return len(c.stops) > 0, c.err
	}
	raw, err := c.line.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false, err
	}
	var unread int
	if e := raw.Control(func(fd uintptr) { unread, err = host.Unread(fd) }); e != nil {
		err = e
	}
	if err != nil || unread > 0 {
		return false, err
	}
	return false, f()
}

// stop waits for a stop report.
func (c *conn) stop(why string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.await(&c.stops, why)
}

// ask sends a request and waits for its answer. An empty one says that the stub
// does not know the request.
func (c *conn) ask(request string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking, c.answers = true, nil
	defer func() { c.asking = false }()
	if err := c.put(request); err != nil {
		return "", err
	}
	return c.await(&c.answers, request)
}

// monitor gives the stub a command for the program that it is part of, and answers the command's
// output.
func (c *conn) monitor(command string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking, c.answers = true, nil
	defer func() { c.asking = false }()
	err := c.put("qRcmd," + hex.EncodeToString([]byte(command)))
	var out []byte
	for err == nil {
		var answer string
		if answer, err = c.await(&c.answers, command); err != nil {
			break
		}
		if answer == "OK" {
			return string(out), nil
		}
		text, ok := strings.CutPrefix(answer, "O")
		b, bad := hex.DecodeString(text)
		if !ok || bad != nil {
			return "", refused("monitor "+command, answer)
		}
		out = append(out, b...)
	}
	return "", err
}

// askAll is ask for requests that follow each other whatever the answers are.
func (c *conn) askAll(requests ...string) (answers []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking, c.answers = true, nil
	defer func() { c.asking = false }()
	together := len(requests)
	if !c.ahead {
		together = 1
	}
	for group := range slices.Chunk(requests, together) {
		if err := c.put(group...); err != nil {
			return nil, err
		}
		for _, request := range group {
			answer, err := c.await(&c.answers, request)
			if err != nil {
				return nil, err
			}
			answers = append(answers, answer)
		}
	}
	return answers, nil
}

// command is ask for requests that are answered OK.
func (c *conn) command(request string) error {
	answer, err := c.ask(request)
	if err == nil && answer != "OK" {
		err = refused(request, answer)
	}
	return err
}

// errUnknown tells that the stub does not have a request at all.
var errUnknown = errors.New("the stub does not know it")

// refused is the error for an answer that says no.
func refused(request, answer string) error {
	if answer == "" {
		return fmt.Errorf("%.40s: %w", request, errUnknown)
	}
	return fmt.Errorf("%.40s: the stub answers %.40q", request, answer)
}

// hurry sends requests that do not wait for each other in one write.
func (c *conn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = true
}

// quiet ends acknowledgements.
func (c *conn) quiet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
}

// tryStop takes a stop report if there is one.
func (c *conn) tryStop() (report string, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stops) == 0 {
		return "", false, c.err
	}
	report = c.stops[0]
	c.stops = c.stops[1:]
	return report, true, nil
}

// hasStop tells whether tryStop would give one.
func (c *conn) hasStop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stops) > 0 || c.err != nil
}

// dead is why nothing will come in any more.
func (c *conn) dead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// hasEnded tells whether the stub has hung up.
func (c *conn) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// dropStops forgets the reports so far.
func (c *conn) dropStops() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stops = nil
}

// fail ends the connection, for a reason.
func (c *conn) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = why
	}
	c.line.Close()
	c.change.Broadcast()
}
