package jumps_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/jumps"
	"kprobe/internal/patch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// victim is testdata/patched.cc, running.
type victim struct {
	t      *testing.T
	in     io.Writer
	out    *bufio.Reader
	code   *jumps.Code
	module arch.Range
	sites  []site
	places *patch.Detours
	mapped map[arch.Addr]bool
}

// site is an instruction of the functions under test.
type site struct {
	addr arch.Addr
	body *patch.Body
}

func startVictim(t *testing.T, flags string) *victim {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "patched")
	args := append(strings.Fields(flags), "-o", exe, "testdata/patched.cc", "testdata/targets.cc")
	if out, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	cmd := exec.Command(exe)
	in, out := testprog.StartPiped(t, cmd)
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	v := &victim{t: t, in: in, out: bufio.NewReader(out), mapped: map[arch.Addr]bool{}}

	f, code := open(t, exe)
	at, err := strconv.ParseUint(v.line(), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	v.code = code.At(at - f.Lookup("work_sort")[0].Addr)
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	mappings, err := symbol.ParseMaps(maps)
	if err != nil {
		t.Fatal(err)
	}
	var occupied []arch.Range
	for _, m := range mappings {
		r := m.Range()
		occupied = append(occupied, r)
		if m.Path == exe {
			if v.module.End == 0 {
				v.module.Start = r.Start
			}
			v.module.End = r.End
		}
	}
	v.places = patch.NewDetours(amd64.ISA, occupied, 0x10000, 0x7fff_ffff_f000, 4096)

	for _, fn := range v.code.Functions() {
		base, _, _ := strings.Cut(fn.Name, ".")
		switch base {
		case "tables", "computed", "_Z7catchesi", "work_sort", "work_text", "work_float", "work_calls", "_ZL3fibj", "_ZL3addjj", "_ZL3mixjj":
			body := v.code.Body(fn)
			for _, in := range body.Insns {
				v.sites = append(v.sites, site{body.Addr + arch.Addr(in.Off), body})
			}
		}
	}
	if len(v.sites) < 120 {
		t.Fatalf("only %d instructions under test", len(v.sites))
	}
	return v
}

func (v *victim) line() string {
	v.t.Helper()
	s, err := v.out.ReadString('\n')
	if err != nil {
		v.t.Fatalf("the victim says %q and ends: %v", s, err)
	}
	return strings.TrimSpace(s)
}

func (v *victim) say(format string, args ...any) {
	v.t.Helper()
	if _, err := fmt.Fprintf(v.in, format+"\n", args...); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) ask(format string, args ...any) uint64 {
	v.t.Helper()
	v.say(format, args...)
	s := v.line()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		v.t.Fatalf("%q: %q", fmt.Sprintf(format, args...), s)
	}
	return n
}

// run is a run of the victim's work.
type run struct {
	sum    uint64
	strays int // traps under a jump
}

func (v *victim) run(how string) run {
	v.t.Helper()
	v.say("%s", how)
	var r run
	s := v.line()
	if _, err := fmt.Sscan(s, &r.sum, &r.strays); err != nil {
		v.t.Fatalf("%s: %q", how, s)
	}
	return r
}

// counted are the bytes before the displaced instructions in a detour: one is
// added to the word that is at a distance from their end.
func counted(distance int32) []byte {
	b := []byte{0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c, 0x48, 0xff, 0x05} // lea rsp, [rsp-128]; pushfq; inc qword ptr [rip+...
	b = binary.LittleEndian.AppendUint32(b, uint32(distance+9))
	return append(b, 0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0) // popfq; lea rsp, [rsp+128]
}

const (
	countedLen = 22
	counterAt  = 152
	detourLen  = 160
)

// probe is a jump that stands in the victim.
type probe struct {
	*patch.Jump
	patch.Place
	slot *patch.Slot
}

// put plans a jump with a counting detour and writes all but the jump itself.
// It is nil where there can be none.
func (v *victim) put(s site) *probe {
	v.t.Helper()
	j := s.body.PlanJump(s.addr)
	p, ok := v.places.Put(j, v.module, detourLen)
	if !ok {
		return nil
	}
	for _, a := range v.places.Areas() {
		for page := a.Start; page < a.End; page += 4096 {
			if !v.mapped[page] {
				v.mapped[page] = true
				v.say("map %x 1000", uint64(page))
			}
		}
	}
	slot, err := j.Emit(p.Way, p.Detour+countedLen)
	if err != nil || len(slot.Code) > counterAt-countedLen {
		v.t.Fatalf("%v: %v", j, err)
	}
	v.say("write %x %x", uint64(p.Detour), append(counted(counterAt-countedLen), slot.Code...))
	v.say("write %x %x", uint64(p.Detour+counterAt), make([]byte, 8))
	if p.Stub != 0 {
		jump, err := amd64.ISA.Jump(p.Stub, p.Detour)
		if err != nil {
			v.t.Fatal(err)
		}
		v.say("write %x %x", uint64(p.Stub), jump)
	}
	return &probe{j, p, slot}
}

// arm writes the jump, and disarm takes it back.
func (v *victim) arm(p *probe) {
	w := p.Write(p.Way, p.To())
	v.say("write %x %x", uint64(w.Addr), w.New)
}

func (v *victim) disarm(p *probe) {
	w := p.Write(p.Way, p.To())
	v.say("write %x %x", uint64(w.Addr), w.Old)
	v.places.Release(p.Place)
}

var victimFlags = []string{"-O2 -fPIE -pie", "-O1 -fno-pie -no-pie", "-Os -fPIE -pie -fcf-protection=none"}

// A program works as before with jumps in it, many at once, and each detour
// runs as often as the instruction did.
func TestProgramWithJumps(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 4
	}
	for i, flags := range victimFlags {
		t.Run(flags, func(t *testing.T) {
			v := startVictim(t, flags)
			want := v.run("trace")
			counts := map[arch.Addr]uint64{}
			executed := 0
			for _, s := range v.sites {
				counts[s.addr] = v.ask("count %x", uint64(s.addr))
				if counts[s.addr] > 0 {
					executed++
				}
			}
			rng := rand.New(rand.NewPCG(21, uint64(i)))
			tactics := map[patch.Tactic]int{}
			hit := 0
			for range rounds {
				var probes []*probe
				var taken []arch.Range
				for _, n := range rng.Perm(len(v.sites)) {
					p := v.put(v.sites[n])
					if p == nil {
						continue
					}
					span, clear := p.Span(p.Way), true
					for _, o := range taken {
						clear = clear && (o.End <= span.Start || span.End <= o.Start)
					}
					if !clear {
						v.places.Release(p.Place)
						continue
					}
					v.arm(p)
					probes, taken = append(probes, p), append(taken, span)
					tactics[p.Way.Tactic]++
				}
				if got := v.run("run"); got.sum != want.sum || got.strays != 0 {
					t.Fatalf("with %d jumps: %v, without %v", len(probes), got, want)
				}
				for _, p := range probes {
					n := v.ask("read %x", uint64(p.Detour+counterAt))
					if n != counts[p.Addr] {
						t.Fatalf("%v ran %d times, and its instruction %d times", p.Jump, n, counts[p.Addr])
					}
					if n > 0 {
						hit++
					}
					v.disarm(p)
				}
			}
			if got := v.run("run"); got.sum != want.sum {
				t.Errorf("without jumps again: %v, before %v", got, want)
			}
			t.Logf("%d instructions, %d executed; jumps: %v, %d of them hit", len(v.sites), executed, tactics, hit)
			if hit < 5*rounds || tactics[patch.Guarded] < 5*rounds || tactics[patch.Whole] < 5*rounds || tactics[patch.Pun] == 0 {
				t.Errorf("too few jumps: %v, %d of them hit", tactics, hit)
			}
		})
	}
}

// A thread that stands under a jump when it is written traps there, and goes on
// in the copy as if nothing had been.
func TestThreadUnderJump(t *testing.T) {
	trials := 60
	if testing.Short() {
		trials = 4
	}
	for i, flags := range victimFlags {
		t.Run(flags, func(t *testing.T) {
			v := startVictim(t, flags)
			want := v.run("trace")
			rng := rand.New(rand.NewPCG(22, uint64(i)))
			stood := 0
			for stood < trials {
				s := v.sites[rng.IntN(len(v.sites))]
				p := v.put(s)
				if p == nil {
					continue
				}
				if len(p.Way.Inner) == 0 {
					v.places.Release(p.Place)
					continue
				}
				under := p.Addr + arch.Addr(p.Way.Inner[rng.IntN(len(p.Way.Inner))])
				if v.ask("count %x", uint64(under)) == 0 {
					v.places.Release(p.Place)
					continue
				}
				for _, off := range p.Way.Inner {
					to, ok := p.slot.Copy(p.Addr + arch.Addr(off))
					if !ok {
						t.Fatalf("%v has no copy of +%d", p.Jump, off)
					}
					v.say("stray %x %x", uint64(p.Addr)+uint64(off), uint64(to))
				}
				v.arm(p)
				got := v.run(fmt.Sprintf("late %x", uint64(under)))
				if got.sum != want.sum || got.strays != 1 {
					t.Fatalf("%d: %v at +%d: %v, want %v", stood, p.Jump, under-p.Addr, got, want)
				}
				stood++
				v.disarm(p)
				v.run("run") // or the next run would be stepped with this jump in place
			}
		})
	}
}
