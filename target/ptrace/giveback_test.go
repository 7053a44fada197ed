//go:build linux && (amd64 || arm64 || riscv64 || s390x)

package ptrace

import (
	"errors"
	"testing"

	"kprobe/arch"
	"kprobe/internal/leftover"
	"kprobe/internal/testprog"
)

// Memory that a process had in common with a dead controller is taken out when nothing leads there:
// no register, and no word that the process has written.
func TestMemoryInUseStays(t *testing.T) {
	const size = 3 << 20
	prog := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := prog.Round("100")[0]
	p, err := Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p.Run(func() {
		if stops, err := p.Freeze(); err != nil || len(stops) != 0 {
			t.Errorf("freeze: %v, %v", stops, err)
			return
		}
		defer p.Thaw()
		maps, err := p.Maps()
		if err != nil {
			t.Error(err)
			return
		}
		at := maps[0].Start - 1<<30
		ours, err := p.Share(at, size)
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Unshare(ours)
		file := "/memfd:" + memoryName(0)
		refused := func(where string) {
			t.Helper()
			if stays, err := leftover.Free(p, file, nil); stays != size || !errors.Is(err, leftover.ErrInUse) {
				t.Errorf("%s leads there: %d bytes stay, %v", where, stays, err)
			}
		}
		th := p.Threads()[0]
		var r, led arch.Regs
		if err := p.Regs(th, &r); err != nil {
			t.Error(err)
		}
		for _, reg := range []arch.Reg{p.arch.PC, p.arch.SP, p.arch.FP} {
			led = r
			led[reg] = uint64(at + size/2)
			p.SetRegs(th, &led)
			refused("a register")
		}
		p.SetRegs(th, &r)
		first := maps[0].Start // of data that were written, and are read only now
		for _, m := range maps {
			if m.Write && m.Inode != 0 {
				first = m.Start
				break
			}
		}
		for where, word := range map[string]arch.Addr{"a stack": r.Addr(p.arch.SP) + 64, "a variable": first, "code": maps[0].Start} {
			word &^= arch.Addr(p.arch.PtrSize - 1)
			had, leads := make([]byte, p.arch.PtrSize), make([]byte, p.arch.PtrSize)
			p.arch.PutWord(leads, uint64(at+size-1))
			if err := errors.Join(p.ReadAt(word, had), p.WriteAt(word, leads)); err != nil {
				t.Error(err)
			}
			refused(where)
			if err := p.WriteAt(word, had); err != nil {
				t.Error(err)
			}
		}
		led = r
		led[p.arch.FP] = uint64(at)
		p.SetRegs(th, &led)
		defer p.SetRegs(th, &r)
		if stays, err := leftover.Free(p, file, []arch.Range{{Start: at, End: at + 1}}); stays != 0 || err != nil {
			t.Errorf("nothing leads there: %d bytes stay, %v", stays, err)
		}
		if now, err := p.Maps(); err != nil || len(now) != len(maps) {
			t.Errorf("%d mappings, %v, and before %d", len(now), err, len(maps))
		}
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got := prog.Round("100")[0]; got != want {
		t.Errorf("the program says %q, and said %q", got, want)
	}
}
