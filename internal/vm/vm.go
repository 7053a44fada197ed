// Package vm boots a Linux kernel under QEMU, with its GDB stub open and its
// memory in a file that the host can read: what `kprobe vm` shows to users, and
// what tests probe. It emulates (TCG): no KVM, no privilege is needed.
//
// The guest is Debian's kernel and a busybox (Fetch), and nothing else. A folder
// holds what belongs to one guest:
//
//	gdb       socket of the GDB stub
//	monitor   socket of QEMU's monitor
//	console   socket of the guest's console, unless that is a terminal
//	ram       the guest's memory, shared
//	window    memory behind an ivshmem device, shared: a place for code and data
//	          of ours that the guest's kernel knows nothing of
//	machine   the machine's name
//	resets    the CPU's state at each reset
//
// # Known dangers
//
// QEMU ends with the process that called Boot, also when that is killed; the
// folder stays.
//
// QEMU 7.2 may go on with what a guest's text was before the guest rewrote it, if another CPU was about to translate the same
// place just then. A CPU then executes a trap for ever that has gone from memory: it was seen with no debugger
// near, within seconds, when static keys were switched on a busy host while both CPUs were busy. Bytes that the stub writes are
// not concerned, since no CPU translates meanwhile; nor is a guest whose CPUs take turns.
package vm

import (
	"bufio"
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/internal/host"
)

// Config says what to boot. Zero values mean the defaults.
type Config struct {
	Machine string // as Go spells it: amd64 (the default), arm64, ppc64le, riscv64, s390x
	Kernel  string // a version of Debian's, such as 6.12; see Fetch
	Dir     string // an existing folder for what belongs to the guest
	CPUs    int    // 1
	Memory  int    // in MiB; 256, other machines than amd64 512
	Append  string // further words for the kernel's command line, such as nokaslr

	// Files are programs and data for the guest: path there, path here.
	Files map[string]string

	// Tell is told what takes long, before it begins; nil for nobody.
	Tell func(what string)

	// Turns has the CPUs take turns, on one thread of the host: for a guest that rewrites its own
	// text while several CPUs are busy. See "Known dangers".
	Turns bool

	// Reboot has the guest boot again after a reset, rather than end.
	Reboot bool

	// Terminal makes the guest's console this process's standard input and output,
	// with a shell. Run cannot be used then.
	Terminal bool
}

// VM is a guest that runs.
type VM struct {
	Kernel *Kernel
	Dir    string

	cmd    *exec.Cmd
	over   chan struct{} // closed when QEMU has ended
	stderr bytes.Buffer  // complete when it has

	mu      sync.Mutex // held while a command runs
	console net.Conn
	lines   *bufio.Reader
	number  int
	each    func(line string) // of the command that runs; see RunFor

	deaf atomic.Bool // it has not answered in time once
}

//go:embed init.sh
var initScript []byte

// patience is how long a guest may take for a thing that takes seconds on an
// idle machine; a test may share two cores with many others.
const patience = 3 * time.Minute

// Boot starts a guest and waits until it takes commands. One that does not is started once
// more: seldom, an emulated kernel stands still before its first word, on a busy host, when
// nobody has touched it yet.
func Boot(c Config) (v *VM, err error) {
	for _, long := range []time.Duration{patience / 2, patience} {
		if v, err = boot(c, long); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return v, err
}

func boot(c Config, long time.Duration) (*VM, error) {
	if err := Emulator(c.Machine); err != nil {
		return nil, err
	}
	k, err := c.Fetch()
	if err != nil {
		return nil, err
	}
	v := &VM{Kernel: k, Dir: c.Dir, over: make(chan struct{})}
	if err := v.initramfs(c.Files); err != nil {
		return nil, err
	}
	if err := os.WriteFile(v.path("machine"), []byte(k.Machine+"\n"), 0o644); err != nil {
		return nil, err
	}
	for _, name := range []string{"gdb", "monitor", "console"} {
		if err := os.Remove(v.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err // an old socket must not be taken for the new one
		}
	}
	if err := v.start(c); err != nil {
		return nil, err
	}
	if !c.Terminal {
		err = v.attach(long)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("the guest does not come up: %w", err), v.Close())
		return nil, fmt.Errorf("%w %s", err, strings.TrimSpace(v.stderr.String()))
	}
	return v, nil
}

func (v *VM) path(name string) string { return filepath.Join(v.Dir, name) }

// Stub is where the GDB stub listens, in the form that gdbremote.Dial takes.
func (v *VM) Stub() string { return "unix:" + v.path("gdb") }

// RAM is the file that holds the guest's memory.
func (v *VM) RAM() string { return v.path("ram") }

// Window is the file behind the guest's ivshmem device; "" for a machine without.
func (v *VM) Window() string {
	if v.Kernel.Machine != "amd64" {
		return ""
	}
	return v.path("window")
}

// Done is closed when the guest has ended.
func (v *VM) Done() <-chan struct{} { return v.over }

// Obeys tells whether the guest takes commands: it has not ended, and has answered all of them in time.
func (v *VM) Obeys() bool {
	select {
	case <-v.over:
		return false
	default:
		return !v.deaf.Load()
	}
}

// PID is QEMU's process id.
func (v *VM) PID() int { return v.cmd.Process.Pid }

func (v *VM) initramfs(files map[string]string) error {
	busybox, err := os.ReadFile(v.Kernel.busybox())
	if err != nil {
		return err
	}
	t := tree{}
	for _, d := range []string{"dev", "proc", "sys", "tmp", "root"} {
		t.folder(d)
	}
	t.add("bin/busybox", 0o755, busybox)
	t.add("init", 0o755, initScript)
	for there, here := range files {
		b, err := os.ReadFile(here)
		if err != nil {
			return err
		}
		t.add(strings.TrimPrefix(there, "/"), 0o755, b)
	}
	var b bytes.Buffer
	if err := t.writeTo(&b); err != nil {
		return err
	}
	return os.WriteFile(v.path("initramfs"), b.Bytes(), 0o644)
}

// command is QEMU's command line. It runs in the guest's folder: a socket's
// path must be short.
func (v *VM) command(c Config) []string {
	m := machines[v.Kernel.Machine]
	memory := c.Memory
	if memory == 0 {
		memory = 256
		if v.Kernel.Machine != "amd64" {
			memory = 512
		}
	}
	words := "console=" + m.console + " quiet panic=-1 " + c.Append
	if v.Kernel.Machine == "amd64" {
		// On a busy host no tick may come for longer than the kernel waits for one
		// when it tries its timer out: it would panic.
		words += " no_timer_check"
	}
	if c.Terminal {
		words += " kprobe_shell=1"
	}
	accel := "tcg"
	if c.Turns {
		accel += ",thread=single"
	}
	socket := func(id, name string) []string {
		return []string{"-chardev", "socket,id=" + id + ",server=on,wait=off,path=" + name}
	}
	args := slices.Concat(m.qemu, []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-accel", accel,
		"-d", "cpu_reset", "-D", "resets",
		"-smp", strconv.Itoa(max(1, c.CPUs)), "-m", strconv.Itoa(memory),
		"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=ram,share=on", memory),
		"-kernel", v.Kernel.Image(), "-initrd", "initramfs", "-append", words,
	}, socket("gdb", "gdb"), []string{"-gdb", "chardev:gdb"},
		socket("mon", "monitor"), []string{"-mon", "chardev=mon,mode=readline"})
	if !c.Reboot {
		args = append(args, "-no-reboot")
	}
	if v.Kernel.Machine == "amd64" {
		args = append(args, "-object", "memory-backend-file,id=window,size=32M,mem-path=window,share=on",
			"-device", "ivshmem-plain,memdev=window")
	}
	if c.Terminal {
		args = append(args, "-chardev", "stdio,id=con,mux=on,signal=off")
	} else {
		args = append(args, socket("con", "console")...)
	}
	return append(args, m.line...)
}

// Emulator tells whether there is one for a machine (Config.Machine) here, and else which
// package it comes with.
func Emulator(name string) error {
	m, ok := machines[cmp.Or(name, "amd64")]
	if !ok {
		return nil // Fetch says so
	}
	if _, err := exec.LookPath(m.qemu[0]); err != nil {
		return fmt.Errorf("%w: it comes with the package %s", err, m.from)
	}
	return nil
}

// start starts QEMU, which dies with us. The kernel holds that to the thread
// that started it, which is therefore kept as long as QEMU lives.
func (v *VM) start(c Config) error {
	args := v.command(c)
	v.cmd = exec.Command(args[0], args[1:]...)
	v.cmd.Dir = v.Dir
	v.cmd.Stderr = &v.stderr
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.Terminal}
	host.DieWithParent(v.cmd.SysProcAttr)
	if c.Terminal {
		v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := v.cmd.Start()
		started <- err
		if err == nil {
			v.cmd.Wait()
			close(v.over)
		}
	}()
	return <-started
}

// dial connects to one of QEMU's sockets, which may not be there yet.
func (v *VM) dial(name string) (net.Conn, error) {
	for end := time.Now().Add(patience); ; {
		c, err := net.Dial("unix", v.path(name))
		if err == nil {
			return c, nil
		}
		select {
		case <-v.over:
			return nil, fmt.Errorf("QEMU has ended: %v", v.cmd.ProcessState)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
}

// attach waits for the guest's first answer, so long.
func (v *VM) attach(long time.Duration) error {
	var err error
	if v.console, err = v.dial("console"); err != nil {
		return err
	}
	v.lines = bufio.NewReader(v.console)
	v.console.SetDeadline(time.Now().Add(long))
	_, err = v.answer()
	return err
}

// Run runs a shell command in the guest and answers what it prints, on both of
// its outputs. A command that fails, or takes longer than some minutes, is an
// error. What it leaves in the background may not print.
func (v *VM) Run(command string) (string, error) { return v.RunFor(command, patience, nil) }

// Status is the error of a command that ended with another status than 0.
type Status struct {
	Code int    // as the guest's shell has it: 128 and the signal's number for one that was killed
	Said string // the beginning of what it printed
}

func (s *Status) Error() string { return fmt.Sprintf("exit status %d: %.300s", s.Code, s.Said) }

// RunFor is Run for a command that may take so long; each, if that is not nil, is given what it
// prints line by line, while it runs. Errors: a *Status; os.ErrDeadlineExceeded, after which the guest
// obeys nothing more; the guest's end.
func (v *VM) RunFor(command string, long time.Duration, each func(line string)) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.Contains(command, "\n") {
		return "", fmt.Errorf("command of several lines: %q", command)
	}
	v.number++
	v.console.SetDeadline(time.Now().Add(long))
	if _, err := fmt.Fprintf(v.console, "%d %s\n", v.number, command); err != nil {
		return "", err
	}
	v.each = each
	out, err := v.answer()
	v.each = nil
	if err != nil {
		err = fmt.Errorf("%s: %w", command, err)
	}
	return out, err
}

// end tells how the guest ended, whose console has been closed.
func (v *VM) end() error {
	<-v.over
	err := fmt.Errorf("the guest has ended (%v)", v.cmd.ProcessState)
	if said := strings.TrimSpace(v.stderr.String()); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	// A machine that resets says nothing itself, such as after a triple fault.
	resets, _ := os.ReadFile(v.path("resets"))
	if _, last, ok := strings.Cut(string(resets), "Triple fault"); ok {
		err = fmt.Errorf("%w: triple fault%s", err, last)
	}
	return err
}

// answer reads as far as the line that ends the answer to command v.number.
func (v *VM) answer() (string, error) {
	var out strings.Builder
	mark := fmt.Sprintf("@@%d ", v.number)
	for {
		line, err := v.lines.ReadString('\n')
		if err != nil {
			v.deaf.Store(true)
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				err = v.end()
			}
			said := out.String() + line
			return out.String(), fmt.Errorf("%w after %q", err, said[max(0, len(said)-4000):]) // a panic is at the end
		}
		line = strings.ReplaceAll(line, "\r", "") // until the guest has set up its terminal
		before, rest, ok := strings.Cut(line, mark)
		if !ok {
			v.print(line)
			out.WriteString(line)
			continue
		}
		v.print(before)
		out.WriteString(before) // output whose last line was not ended
		status, _, _ := strings.Cut(rest, "@@")
		if status != "0" {
			code, err := strconv.Atoi(status)
			if err != nil {
				return out.String(), fmt.Errorf("exit status %q: %.300s", status, out.String())
			}
			return out.String(), &Status{code, out.String()}
		}
		return out.String(), nil
	}
}

func (v *VM) print(line string) {
	if v.each != nil && line != "" {
		v.each(line)
	}
}

// Monitor gives QEMU's monitor a command and answers what it prints.
func (v *VM) Monitor(command string) (string, error) {
	c, err := v.dial("monitor")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	const prompt = "(qemu) "
	read := func() (string, error) {
		var out []byte
		b := make([]byte, 4096)
		for !bytes.HasSuffix(out, []byte(prompt)) {
			n, err := c.Read(b)
			if err != nil {
				return "", err
			}
			out = append(out, b[:n]...)
		}
		return string(out), nil
	}
	if _, err := read(); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "%s\n", command); err != nil {
		return "", err
	}
	out, err := read()
	// The command comes first, echoed with movements of the cursor.
	_, out, _ = strings.Cut(strings.ReplaceAll(out, "\r", ""), "\n")
	return strings.TrimSuffix(out, prompt), err
}

// Reset resets a guest that reboots, and waits until it takes commands again; meanwhile,
// if that is not nil, is done when the machine was told to.
func (v *VM) Reset(meanwhile func()) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := v.Monitor("system_reset"); err != nil {
		return err
	}
	if meanwhile != nil {
		meanwhile()
	}
	v.number = 0
	v.console.SetDeadline(time.Now().Add(patience))
	_, err := v.answer()
	return err
}

// Wait waits for the end of the guest.
func (v *VM) Wait() error {
	<-v.over
	if !v.cmd.ProcessState.Success() {
		return fmt.Errorf("QEMU ended: %v %s", v.cmd.ProcessState, strings.TrimSpace(v.stderr.String()))
	}
	return nil
}

// Close ends the guest, as pulling its plug would, and removes what it had in
// its folder.
func (v *VM) Close() error {
	v.cmd.Process.Kill() // an error tells that it has ended by itself
	<-v.over
	if v.console != nil {
		v.console.Close()
	}
	var errs []error
	for _, name := range []string{"gdb", "monitor", "console", "ram", "window", "machine", "initramfs", "resets"} {
		if err := os.Remove(v.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Machines are the names that Config.Machine may have.
func Machines() []string { return slices.Sorted(maps.Keys(machines)) }
