// Package guardian starts a process that outlives this one: when the controller dies, it restores
// the target in the controller's place. Its work is Go code of the controller's program, so it runs
// that program's code. It must not run the program's initialisation. The packages of a program that
// imports this one may open ports, lock files or register metrics when they are initialised, and
// did so already, in the controller. See program.
package guardian

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"kprobe/internal/patience"
)

// Guardian is the controller's end of one.
type Guardian struct {
	pid   int
	pipe  io.WriteCloser // carries our words to it; its end says that the controller died
	ready *os.File       // a byte each time that the guardian is ready
}

// Role names a guardian's task. It calls play where this process is a guardian that was started
// with that name, and ends the process. It is called when the package is initialised, before the
// main function does anything.
func Role(name string, play func(args []string)) {
	roles = append(roles, name)
	if len(os.Args) > 0 && os.Args[0] == name {
		named(name)
		play(os.Args[1:])
		os.Exit(0)
	}
}

// roles are the names that guardians are started with.
var roles []string

// Is tells whether a process, whose files in /proc are read so, is a guardian: this controller's or
// another's. None may ever be a target: its controller waits for it while it is stopped, and it for
// its controller. One that is about to execute its program has no name yet, and maps no library.
func Is(read func(file string) ([]byte, error)) bool {
	cmdline, _ := read("cmdline")
	name, _, _ := strings.Cut(string(cmdline), "\x00")
	return slices.Contains(roles, name)
}

// Await waits, in the guardian, for what becomes of the controller: true says that it died, false
// that it has put everything back.
func Await(in io.Reader) (died bool) {
	n, _ := io.ReadFull(in, make([]byte, 1))
	return n == 0
}

// Ready tells the controller, in the guardian, that its request is done. See Guardian.Wait. The
// controller may have died: os.Stdout would end this process then (os/signal, SIGPIPE), before it
// has done its work.
func Ready() { syscall.Write(syscall.Stdout, []byte{0}) }

// File is, in the guardian, one of the files that Start was given.
func File(i int) *os.File { return os.NewFile(uintptr(firstFile+imageFiles+i), "") }

// firstFile is the descriptor of the first of a process's ExtraFiles.
const firstFile = 3

// Start starts a guardian, with more files if it needs them. Its standard error is ours, its
// standard input our messages. Errors: those of program, and the system's.
func Start(role string, args []string, files ...*os.File) (*Guardian, error) {
	path, image, err := program()
	if err != nil {
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	g := new(Guardian)
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{role}, args...),
		Stderr: os.Stderr, ExtraFiles: append(image, files...),
		// Of a session of its own: signals that are sent to the controller's process group, ^C and
		// kill alike, are not meant for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := g.start(cmd); err != nil {
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	g.pid = cmd.Process.Pid
	go cmd.Wait()
	return g, nil
}

func (g *Guardian) start(cmd *exec.Cmd) error {
	// Pipes of our own: Cmd's would be closed by its Wait, which is at it already.
	in, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	ready, out, err := os.Pipe()
	if err != nil {
		pipe.Close()
		return err
	}
	defer out.Close()
	cmd.Stdin, cmd.Stdout = in, out
	if err := cmd.Start(); err != nil {
		pipe.Close()
		ready.Close()
		return unnumbered(err)
	}
	g.pipe, g.ready = pipe, ready
	return nil
}

// PID is its process.
func (g *Guardian) PID() int { return g.pid }

// Wait waits for the guardian to say that it is Ready. It counts only time in which the guardian
// has a CPU, or nothing to do. Errors: os.ErrDeadlineExceeded; io.EOF, the guardian has ended.
func (g *Guardian) Wait(most time.Duration) error {
	const look = 200 * time.Millisecond
	for p := patience.Of(g.pid, most); ; {
		g.ready.SetReadDeadline(time.Now().Add(look))
		_, err := io.ReadFull(g.ready, make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || p.Spent() {
			return err
		}
	}
}

// Tell says something to the guardian. The guardian knows by itself where the text ends.
func (g *Guardian) Tell(b []byte) error {
	_, err := g.pipe.Write(b)
	return err
}

// Over tells a guardian that is at Await that all is back: it goes.
func (g *Guardian) Over() {
	g.pipe.Write([]byte{0})
	g.Leave()
}

// Leave lets the guardian act as if this process had died: it does nothing where there is nothing
// to put back.
func (g *Guardian) Leave() {
	g.pipe.Close()
	g.ready.Close()
}
