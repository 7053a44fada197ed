// Package stub has programs of other machines behind the stub of QEMU's user mode, and holds them to what
// is promised of all targets.
package stub

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/conform"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/target/gdbremote"
)

// subject is a machine that QEMU runs programs of.
type subject struct {
	arch  *arch.Arch
	qemu  string
	flags []string // of the compiler

	without []string // cases of kprobes.txt that it does not have
}

// Static, for what QEMU maps besides the program is not known.
var subjects = []subject{
	{arch.RISCV64, "qemu-riscv64", []string{"CC=riscv64-linux-gnu-gcc"}, nil},
	{arch.PPC64LE, "qemu-ppc64le", clang("powerpc64le-linux-gnu"), nil},
	{arch.PPC, "qemu-ppc", append(clang("powerpc-linux-gnu"), "-B/usr/powerpc-linux-gnu/lib", "-L/usr/powerpc-linux-gnu/lib"), words},
	{arch.MIPS64LE, "qemu-mips64el", clang("mips64el-linux-gnuabi64"), delays},
	{arch.MIPSLE, "qemu-mipsel", clang("mipsel-linux-gnu"), slices.Concat(words, delays)},
}

var (
	// Threads that come to probes at once: QEMU does not hold them (quirks.go).
	threads = []string{"CallsUnderWay", "HandlersRunOneAfterAnother"}
	// Jprobes with numbers of 64 bits in registers of 32.
	words = []string{"JprobeArguments", "OrderAtOneAddress", "ReturnsTogether"}
	// No return probes, and results that are there behind the return only.
	delays = []string{"MaxActive", "EntryHandlerVeto", "PrivateData", "ReturnsTogether", "ReturnRefused", "RegistersAreTheThreads", "BatchRollsBack", "List"}
)

func clang(target string) []string {
	return []string{"CC=clang", "-w", "--target=" + target, "-fuse-ld=lld"}
}

// program is one for a machine.
func (m *subject) program(t testing.TB, name string) string {
	return testprog.Build(t, name, append([]string{"-O2", "-static", "-no-pie"}, m.flags...)...)
}

// run is a program that runs, under the stub or alone.
type run struct {
	path string
	p    *testprog.Proc
	said bool // that it is ready

	alone bool // no stub holds it
}

func (m *subject) start(t testing.TB, path string, flags ...string) *run {
	return &run{path: path, p: testprog.StartCmd(t, exec.Command(m.qemu, append(flags, path)...)), alone: len(flags) == 0}
}

// ready waits for the program to be mapped, and to wait for a round.
func (r *run) ready() {
	if !r.said {
		r.p.Expect("ready")
		r.said = true
	}
}

// play sends a round; what it answers waits for its end.
func (r *run) play(round string) func() []string {
	r.ready()
	r.p.Send("%s", round)
	return func() (said []string) {
		for line := r.p.Line(); line != "done"; line = r.p.Line() {
			said = append(said, line)
		}
		return said
	}
}

// text is the program's code as QEMU has it mapped.
func (r *run) text(t testing.TB) []byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", r.p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := symbol.ParseMaps(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", r.p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	f, err := elf.Open(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	i := slices.IndexFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 })
	code := f.Progs[i]
	for _, m := range maps {
		if first := code.Off &^ (1<<12 - 1); m.Path == r.path && m.Off == first {
			b := make([]byte, code.Filesz)
			if _, err := mem.ReadAt(b, int64(uint64(m.Start)+code.Off-first)); err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("%s is not mapped", r.path)
	return nil
}

// dial starts the program under the stub, where it stands at its first instruction.
func (m *subject) dial(t testing.TB, path string) (*run, *gdbremote.Target) {
	dir, err := os.MkdirTemp("", "stub") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	r := m.start(t, path, "-g", socket)
	var g *gdbremote.Target
	testprog.UntilNil(t, "the stub listens", testprog.Here, func() (err error) {
		g, err = gdbremote.Dial("unix:"+socket, nil)
		return err
	})
	t.Cleanup(func() { g.Close() })
	if g.Arch() != m.arch {
		t.Fatalf("it is taken for %s", g.Arch().Name)
	}
	return r, g
}

// attach opens a session on one, and lets it run.
func (m *subject) attach(t testing.TB, path string, o *kprobe.Options) (*run, *kprobe.Session) {
	r, g := m.dial(t, path)
	s, err := kprobe.Open(g, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Continue(); err != nil {
		t.Fatal(err)
	}
	return r, s
}

// kprobes.txt on each machine. A stub serves one client, so each session has a program of its own.
func TestConform(t *testing.T) {
	for _, m := range subjects {
		if testing.Short() && (m.arch == arch.PPC64LE || m.arch == arch.MIPSLE) {
			continue // PPC and MIPS64LE are their like
		}
		t.Run(m.arch.Name, func(t *testing.T) {
			path := m.program(t, "conform")
			conform.Run(t, func(t testing.TB) *conform.Victim {
				now := m.start(t, path)
				return &conform.Victim{
					Start: func(t testing.TB, round string) func() []string { return now.play(round) },
					Attach: func(t testing.TB, o *kprobe.Options) (s *kprobe.Session) {
						now, s = m.attach(t, path, o)
						return s
					},
					Text: func(t testing.TB) []byte {
						if now.alone {
							now.ready()
						}
						return now.text(t)
					},
					Data:    0x1000,
					Nowhere: 0x1000,
				}
			}, slices.Concat(threads, m.without, conform.Briefly())...)
		})
	}
}
