package patch_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/patch"
)

// assembled is the code of assembly text, and the addresses of its labels.
func assembled(t *testing.T, text string) (code []byte, labels map[string]arch.Addr) {
	t.Helper()
	obj := filepath.Join(t.TempDir(), "x.o")
	cmd := exec.Command("as", "--64", "-o", obj, "-")
	cmd.Stdin = strings.NewReader(".intel_syntax noprefix\n" + text + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as: %v\n%s", err, out)
	}
	f, err := elf.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if code, err = f.Section(".text").Data(); err != nil {
		t.Fatal(err)
	}
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	labels = make(map[string]arch.Addr)
	for _, s := range syms {
		labels[s.Name] = base + arch.Addr(s.Value)
	}
	return code, labels
}

const base = 0x401000

// Every case is a function from f to end, planned at site. Where there is a
// label other, another function begins there.
func TestPlanJump(t *testing.T) {
	for _, tt := range []struct{ name, code, want string }{
		{"long enough", `
			f: site: mov eax, 0x12345678
			ret
			end:`, `
0x401000
  whole   displaces b8 78 56 34 12
          writes 5 of e9........`},

		{"a loop to the site itself", `
			f: site: add rax, 0x11223344
			jne site
			ret
			end:`, `
0x401000
  whole   displaces 48 05 44 33 22 11
          writes 5 of e9........`},

		{"prologue", `
			f: site: push rbp
			mov rbp, rsp
			sub rsp, 32
			ret
			end:`, `
0x401000
  guarded displaces 55 48 89 e5 48 83 ec 20, instruction at +1, instruction at +4
          writes 5 of e9!!....!!
  pun     displaces 55 48 89 e5, instruction at +1
          writes 4 of e9!!....48
  pun     displaces 55
          writes 1 of e94889e548`},

		{"a branch to the next instruction", `
			f: xor eax, eax
			site: mov rcx, rdx
			loop: add eax, 5
			dec rcx
			jne loop
			ret
			end:`, `
0x401002
  pun     displaces 48 89 d1
          writes 3 of e9....83c0
  pun     displaces 48 89 d1
          writes 3 of 2ee9..83c005
  pun     displaces 48 89 d1
          writes 3 of 2e2ee983c00548
  no more: something leads, or refers, to +3`},

		{"a branch into the instruction", `
			f: jne site+1
			site: lock cmpxchg [rdi], ecx
			ret
			end:`, `
0x401002
  no more: something leads, or refers, to +1`},

		{"a switch that is not understood", `
			f: jmp [rax]
			site: mov eax, edx
			mov ecx, 1
			ret
			end:`, `
0x401002
  guarded displaces 89 d0 b9 01 00 00 00, instruction at +2
          writes 5 of e9..!!....
  pun     displaces 89 d0
          writes 2 of e9..b90100
  pun     displaces 89 d0
          writes 2 of 2ee9b9010000`},

		{"a call through a register", `
			f: nop
			site: call rax
			mov ecx, 0x55667788
			ret
			end:`, `
0x401001
  pun     displaces ff d0
          writes 2 of e9..b98877
  pun     displaces ff d0
          writes 2 of 2ee9b9887766
  no more: a call comes back to what follows it`},

		{"a call that is the last", `
			f: site: mov rdi, rax
			call rcx
			ret
			end:`, `
0x401000
  guarded displaces 48 89 c7 ff d1, instruction at +3
          writes 5 of e9....!!..
  pun     displaces 48 89 c7
          writes 3 of e9....ffd1
  pun     displaces 48 89 c7
          writes 3 of 2ee9..ffd1c3`},

		{"a return with filler behind it", `
			f: nop
			site: ret
			end:
			.balign 16
			other: push rbx`, `
0x401001
  whole   displaces c3
          writes 5 of e9........`},

		{"a return with too little filler behind it", `
			f: nop
			site: ret
			end:
			.balign 4
			other: push rbx
			mov rax, rdi`, `
0x401001
  pun     displaces c3
          writes 3 of e9....5348
  pun     displaces c3
          writes 3 of 2ee9..534889
  pun     displaces c3
          writes 3 of 2e2ee9534889f8
  no more: the instruction leaves, and others come to what follows it`},

		{"filler inside the function", `
			f: test eax, eax
			jne over
			site: ret
			.balign 16
			over: mov eax, 1
			ret
			end:`, `
0x401004
  whole   displaces c3
          writes 5 of e9........`},

		{"the function ends, and something follows", `
			f: nop
			site: mov edi, eax
			end:
			other: push rbx
			mov ebx, 0x11223344`, `
0x401001
  pun     displaces 89 c7
          writes 2 of e9..53bb44
  pun     displaces 89 c7
          writes 2 of 2ee953bb4433
  no more: the function ends`},

		{"a branch in the middle moves too", `
			f: site: test al, al
			je site
			nop
			ret
			end:`, `
0x401000
  guarded displaces 84 c0 74 fc 90, instruction at +2, instruction at +4
          writes 5 of e9..!!..!!
  pun     displaces 84 c0 74 fc, instruction at +2
          writes 4 of e9..!!..90
  pun     displaces 84 c0 74 fc, instruction at +2
          writes 4 of 2ee9!!..90c3
  pun     displaces 84 c0
          writes 2 of e9..74fc90
  pun     displaces 84 c0
          writes 2 of 2ee974fc90c3`},

		{"a landing place", `
			f: site: jmp rax
			endbr64
			ret
			end:`, `
0x401000
  pun     displaces ff e0
          writes 2 of e9..f30f1e
  pun     displaces ff e0
          writes 2 of 2ee9f30f1efa
  no more: the instruction leaves, and others come to what follows it`},

		{"someone's breakpoint", `
			f: int3
			site: nop
			int3
			ret
			end: .byte 1, 2, 3`, `
0x401001
  pun     displaces 90
          writes 1 of e9ccc30102
  no more: a breakpoint instruction of someone else`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, labels := assembled(t, tt.code)
			im := &patch.Image{Text: []patch.Part{{Addr: base, Code: code}}, Funcs: []arch.Addr{labels["f"]}}
			if other, ok := labels["other"]; ok {
				im.Funcs = append(im.Funcs, other)
			}
			size := labels["end"] - base
			b := patch.NewBody(amd64.ISA, patch.Part{Addr: base, Code: code[:size]}, code[size:], patch.NewFlow(amd64.ISA, im))
			if got := b.PlanJump(labels["site"]).String(); got != strings.TrimPrefix(tt.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, tt.want)
			}
		})
	}
}

// For any bytes, a plan keeps its promises.
func FuzzPlanJump(f *testing.F) {
	f.Add([]byte("\x55\x48\x89\xe5\x48\x83\xec\x20\xc3\x90\x90\x90\x90"), []byte{4, 0, 0, 0}, uint16(9), uint16(0))
	f.Add([]byte("\x84\xc0\x74\xfc\x90\xc3\xcc\xcc\xcc\xcc"), []byte{}, uint16(6), uint16(5))
	f.Add([]byte("\x48\x83\xc4\x18\x5d\xc3\x31\xc0\xc3"), []byte{6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, uint16(9), uint16(5))
	f.Add([]byte("\x48\x8d\x05\xf9\x0f\x00\x00\xff\xe0\xc3"), []byte{0, 0xf0, 0xff, 0xff}, uint16(10), uint16(7))
	f.Fuzz(func(t *testing.T, code, data []byte, size, site uint16) {
		n := min(int(size), len(code))
		flow := patch.NewFlow(amd64.ISA, &patch.Image{
			Text:  []patch.Part{{Addr: base, Code: code}},
			Data:  []patch.Part{{Addr: base + 0x1000, Code: data}},
			Funcs: []arch.Addr{base, base + arch.Addr(n)},
		})
		b := patch.NewBody(amd64.ISA, patch.Part{Addr: base, Code: code[:n]}, code[n:], flow)
		j := b.PlanJump(base + arch.Addr(site))
		if len(j.Ways) == 0 && j.Reason == "" {
			t.Fatal("it keeps the trap without a reason")
		}
		for i := range j.Ways {
			checkWay(t, j, &j.Ways[i], code[min(int(site), len(code)):], flow)
		}
		checkAhead(t, b.PlanAhead(j.Addr, func(a arch.Addr) bool { return a == base+arch.Addr(len(data)) }), j.Addr, code, flow)
	})
}

func checkWay(t *testing.T, j *patch.Jump, w *patch.Way, code []byte, flow *patch.Flow) {
	t.Helper()
	slot, err := j.Emit(w, base+0x10_0000)
	var refusal *patch.Refusal
	if err != nil && !errors.As(err, &refusal) {
		t.Fatalf("%v: %v", j, err)
	}
	starts := map[int]bool{}
	for off := 0; off < w.Displaced; {
		in, err := amd64.ISA.Decode(code[off:], j.Addr+arch.Addr(off))
		if err != nil {
			t.Fatalf("%v: +%d is no instruction", j, off)
		}
		starts[off] = true
		if slot != nil {
			if _, ok := slot.Copy(j.Addr + arch.Addr(off)); !ok {
				t.Fatalf("%v: +%d has no copy in %v", j, off, slot)
			}
		}
		if off += in.Len; off > w.Displaced {
			t.Fatalf("%v: displaces half an instruction", j)
		}
	}
	if to, ok := flow.Known(j.Addr+1, j.Addr+arch.Addr(w.Own)); ok {
		t.Fatalf("%v: covers %v, which something leads to", j, to)
	}
	write := j.Write(w, j.Addr+0x1234_5678)
	if !bytes.Equal(write.Old, code[:len(write.Old)]) || !bytes.Equal(write.New[w.Own:], write.Old[w.Own:]) {
		t.Fatalf("%v: writes % x over % x", j, write.New, write.Old)
	}
	// All that was an instruction's start, and is no longer, is known as such.
	for off := 1; off < min(w.Own, w.Displaced); off++ {
		inner := false
		for _, in := range w.Inner {
			inner = inner || in == off
		}
		if inner != starts[off] {
			t.Fatalf("%v: at +%d there was an instruction: %v, and the plan says %v", j, off, starts[off], inner)
		}
	}
}
