package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/internal/host"
	"kprobe/internal/vm"
)

func vmCommand() *cobra.Command {
	var config vm.Config
	stay, fetch := false, false
	var program string
	var files []string
	c := &cobra.Command{
		Use:   "vm [--dir DIR] [--fetch | --exec PROGRAM [-- ARGUMENT...]]",
		Short: "Boot a kernel under QEMU, ready to be probed",
		Long: `Boot Debian's kernel under QEMU, for trying kprobe on it: no privilege and no KVM
is needed. The kernel is fetched by apt-get, without being installed, and kept in
the user's cache folder. From another terminal, kprobe trace -k DIR probes it.

The machine may be another than this one; it is emulated in any case. Without a stop only
kernels of amd64 are probed, which stat and scripts need; those of arm64, riscv64 and s390x stop
at each hit, and that of ppc64le is not probed: programs run in it.

On a terminal there is a shell; its end (exit, or C-a x) ends the guest. Else
commands for it are read from standard input, one a line, and the end of the input is
the guest's, but with --stay. QEMU is what Debian's package qemu-system-x86 brings
(qemu-system-arm, qemu-system-misc for the other machines).

With --exec the guest runs one program of the machine, statically linked (or with what it
loads put there by --file), and ends: its output is printed, and its exit status is kprobe's.

With --fetch nothing is booted: the kernel is fetched, if it is not there yet, and its
release and folder are printed.

An idle guest calls few functions: let something run in it, such as
while true; do md5sum /proc/stat >/dev/null; done &`,
		Example: `  kprobe vm --smp 2 --dir guest
  kprobe trace -k guest 'p:vfs_read vfs_read file=%di count=%dx:u64' 'r vfs_read ret=$retval:s64'
  GOARCH=arm64 CGO_ENABLED=0 go build -o there ./cmd/kprobe && kprobe vm --arch arm64 --exec there -- doctor`,
		RunE: func(c *cobra.Command, args []string) error {
			config.Tell = func(what string) { report(errors.New(what)) }
			if fetch {
				k, err := config.Fetch()
				if err == nil {
					fmt.Fprintln(c.OutOrStdout(), k.Release, k.Dir)
				}
				return err
			}
			config.Files = make(map[string]string)
			for _, f := range files {
				there, here, ok := strings.Cut(f, "=")
				if !ok || there == "" || here == "" {
					return fmt.Errorf("--file %s: not of the form THERE=HERE", f)
				}
				config.Files[there] = here
			}
			if program == "" {
				if len(args) > 0 {
					return fmt.Errorf("%q: arguments are for the program of --exec", args[0])
				}
				return runVM(c.InOrStdin(), c.OutOrStdout(), config, stay)
			}
			return execVM(c.OutOrStdout(), config, program, args)
		},
	}
	f := c.Flags()
	f.StringVar(&config.Dir, "dir", "", "keep the guest's sockets and memory in `DIR` (a new folder, if none is given)")
	f.StringVar(&config.Machine, "arch", "amd64", "the `MACHINE`: "+strings.Join(vm.Machines(), ", "))
	f.StringVar(&config.Kernel, "kernel", "", "Debian's kernel of this `VERSION`: 5.10, 6.12, 6.12-rt-amd64, or a whole release (default: the newest of this host's Debian)")
	f.BoolVar(&stay, "stay", false, "without a terminal, go on when the input has ended, until a signal or the guest's own end")
	f.BoolVar(&fetch, "fetch", false, "only fetch the kernel")
	f.StringVar(&program, "exec", "", "run this `PROGRAM`, with the arguments behind --, and end")
	f.StringArrayVar(&files, "file", nil, "a file for the guest, as `THERE=HERE`; may be given more than once")
	c.MarkFlagsMutuallyExclusive("fetch", "exec")
	f.IntVar(&config.CPUs, "smp", 1, "CPUs")
	f.IntVar(&config.Memory, "mem", 0, "memory, in `MIB` (256; 512 for machines other than amd64)")
	f.StringVar(&config.Append, "append", "", "further `WORDS` for the kernel's command line")
	return c
}

// execVM runs one program in a guest.
func execVM(out io.Writer, config vm.Config, program string, args []string) error {
	ends := catchSignals()
	dir, err := os.MkdirTemp("", "kprobe-vm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if config.Dir == "" {
		config.Dir = dir
	}
	there := "/run/" + filepath.Base(program)
	config.Files[there] = program
	if config.Memory == 0 { // the program is in memory, and once more in its archive
		config.Memory = 1024
	}
	v, err := vm.Boot(config)
	if err != nil {
		return err
	}
	command := "exec " + shellWord(there)
	for _, a := range args {
		command += " " + shellWord(a)
	}
	over := make(chan error, 1)
	go func() {
		_, err := v.RunFor(command, 24*time.Hour, func(line string) { io.WriteString(out, line) })
		over <- err
	}()
	select {
	case err = <-over:
	case <-ends:
	}
	signal.Reset()
	err = errors.Join(err, v.Close())
	var status *vm.Status
	if errors.As(err, &status) {
		return exitStatus(status.Code)
	}
	return err
}

// shellWord is a word of a shell's command line that stands for itself.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func runVM(in io.Reader, out io.Writer, config vm.Config, stay bool) error {
	ends := catchSignals()
	if config.Dir == "" {
		dir, err := os.MkdirTemp("", "kprobe-vm")
		if err != nil {
			return err
		}
		defer os.Remove(dir)
		config.Dir = dir
	} else if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return err
	}
	if f, ok := in.(*os.File); ok {
		config.Terminal = host.Terminal(f.Fd())
	}
	fmt.Fprintln(out, promise(config))
	v, err := vm.Boot(config)
	if err != nil {
		return err
	}
	over := make(chan error, 1)
	if config.Terminal {
		go func() { over <- v.Wait() }()
	} else {
		fmt.Fprintln(out, "ready")
		go func() {
			err := obey(v, in, out)
			if err == nil && stay {
				err = v.Wait()
			}
			over <- err
		}()
	}
	select {
	case err = <-over:
	case <-ends:
	}
	signal.Reset()
	return errors.Join(err, v.Close())
}

// promise says what can be done with a guest.
func promise(config vm.Config) string {
	for _, a := range arch.All() {
		if err := cpu.Of(a).Walks(); err != nil && a.Name == config.Machine {
			return fmt.Sprintf("%v; --exec runs a program in one", err)
		}
	}
	return fmt.Sprintf("kprobe trace -k %s 'p vfs_read' probes this kernel", config.Dir)
}

// obey runs a guest's commands, one a line.
func obey(v *vm.VM, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text, err := v.Run(strings.TrimSpace(lines.Text()))
		if _, failed := io.WriteString(out, text); failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}
