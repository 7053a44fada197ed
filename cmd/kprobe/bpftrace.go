package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The binary under the name bpftrace, with its command line.

// asBpftrace tells whether the binary was called by that name.
func asBpftrace() bool {
	return len(os.Args) > 0 && strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "bpftrace"
}

// bpftraceCommand takes bpftrace's own command line.
func bpftraceCommand() *cobra.Command {
	var r scriptRequest
	c := &cobra.Command{Use: "bpftrace [FLAGS] {FILE | -e TEXT} [PARAMETER...]", SilenceErrors: true, SilenceUsage: true}
	f := c.Flags()
	f.VarP(&r.pids, "pid", "p", "attach to `PID`")
	f.StringVar(&r.kernel.at, "kernel", "", "the kernel at `PLACE`, as kprobe's -k has it")
	r.scriptFlags(c)
	var mode string
	f.StringVarP(&r.buffer, "buffer", "B", "line", "write the output by `line`, full or none")
	f.BoolVar(&r.silent, "no-warnings", false, "tell of no warnings")
	f.BoolVarP(&r.told, "warnings", "k", false, "tell of reads that fail, and of keys that are not there")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "tell of each probe that is attached; with -l of arguments too")
	f.StringVar(&mode, "mode", "", "`MODE` codegen, bench, test or format: as --dry-run without a target, --bench, --test, --fmt")
	for _, name := range []string{"traceable-functions", "no-feature"} {
		f.StringArray(name, nil, "not used")
	}
	for _, name := range []string{"usdt-file-activation", "verify-llvm-ir"} {
		f.Bool(name, false, "not used")
	}
	f.BoolP("btf", "b", false, "not used")
	for _, name := range []string{"aot", "emit-elf", "emit-llvm"} {
		f.String(name, "", "not there: no such file is made")
	}
	version := f.BoolP("version", "V", false, "print the version")
	info := f.Bool("info", false, "print what this program is")
	f.SortFlags = false
	c.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprintf(c.OutOrStderr(), "USAGE:\n    %s\n\nOPTIONS:\n%s", c.Use, f.FlagUsages())
		return err
	})
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Printf("USAGE:\n    %s\n\nOPTIONS:\n%s", c.Use, f.FlagUsages())
	})
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if _, number, ok := strings.Cut(err.Error(), "invalid argument \""); ok && strings.Contains(err.Error(), "--pid") {
			number, _, _ = strings.Cut(number, "\"")
			if _, errNumber := strconv.ParseUint(number, 10, 64); errNumber == nil || errors.Is(errNumber, strconv.ErrRange) {
				err = asBpftraceSays("Failed to parse pid: pid '%s' out of valid pid range [1,%d]", number, maxPID)
			} else {
				err = asBpftraceSays("Failed to parse pid: pid '%s' is not a valid decimal number", number)
			}
			return err
		}
		fmt.Fprintln(os.Stderr, err)
		_ = c.Usage() // there is nowhere else to say so
		return exitStatus(1)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case *version:
			fmt.Printf("bpftrace %s (kprobe)\n", bpftraceVersion)
			return nil
		case *info:
			return aboutBpftrace()
		case f.Changed("aot"), f.Changed("emit-elf"), f.Changed("emit-llvm"):
			return asBpftraceSays("--aot, --emit-elf and --emit-llvm are not there: programs are made inside the target, without LLVM")
		case r.buffer != "line" && r.buffer != "full" && r.buffer != "none":
			return asBpftraceSays("USAGE: -B must be either 'line', 'full', or 'none'.")
		case len(args) == 0 && r.text == "" && !r.list:
			return asBpftraceSays("USAGE: filename or -e 'program' required.")
		case len(r.pids) == 1 && r.pids[0] > maxPID:
			return asBpftraceSays("Failed to parse pid: pid '%d' out of valid pid range [1,%d]", r.pids[0], maxPID)
		}
		if err := r.setMode(mode); err != nil {
			return err
		}
		return r.run(args)
	}
	return c
}

// setMode is --mode, which goes with none of the options that are short for it.
func (r *scriptRequest) setMode(mode string) error {
	if mode != "" && (r.test || r.bench || r.fmt) {
		return asBpftraceSays("USAGE: --mode conflicts with --test, --bench and --fmt")
	}
	switch mode {
	case "":
	case "codegen":
		r.check = true
	case "bench":
		r.bench = true
	case "test":
		r.test = true
	case "format":
		r.fmt = true
	default:
		return asBpftraceSays("USAGE: --mode can only be 'codegen', 'bench', 'test' or 'format'.")
	}
	return nil
}

// aboutBpftrace is --info.
func aboutBpftrace() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	_, err := fmt.Printf(`System
  OS: %s %s %s
  Arch: %s

Build
  version: %s (kprobe)
  LLVM: none
  libdw (DWARF support): yes

Programs run inside processes, and inside kernels behind a stub. Nothing is asked
of the system's kernel: no feature of it is needed. Probes on a kernel need --kernel.

Kernel helpers
  probe_read: yes
  probe_read_str: yes
  probe_read_user: yes
  probe_read_user_str: yes
  probe_read_kernel: yes
  probe_read_kernel_str: yes
  get_current_cgroup_id: yes
  send_signal: yes
  override_return: yes
  get_boot_ns: yes
  dpath: no
  skboutput: no

Kernel features
  Loop support: yes
  btf: yes
  uprobe refcount (depends on Build:bcc bpf_attach_uprobe refcount): yes

Probe types
  kprobe: yes
  tracepoint: yes
  perf_event: yes
  fentry: yes
  iter: no
`, unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]), unix.ByteSliceToString(u.Machine[:]), bpftraceVersion)
	return err
}

// bpftraceVersion is the one whose language and output these are.
const bpftraceVersion = "v0.26.0"

// asBpftraceSays is an error in bpftrace's words, which begin with a capital letter.
func asBpftraceSays(format string, a ...any) error { return wording(fmt.Sprintf(format, a...)) }

type wording string

func (w wording) Error() string { return string(w) }

// maxPID is the greatest number that Linux gives a process.
const maxPID = 4194304

// tellBpftrace tells an error as bpftrace does, and makes it an exit status.
func tellBpftrace(err error) int {
	return statusOf(err, func(err error) { fmt.Fprintf(os.Stderr, "ERROR: %s\n", err) })
}
