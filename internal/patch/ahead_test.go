package patch_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/patch"
)

// Every case is a function from f to end, planned ahead of site. Where there is a label other,
// another function begins there; where there is a label taken, another probe is.
func TestPlanAhead(t *testing.T) {
	for _, tt := range []struct{ name, code, want string }{
		{"an epilogue", `
			f: test edi, edi
			jne other
			add rsp, 24
			pop rbp
			site: ret
			other: xor eax, eax
			ret
			end:`, `
0x401004
  ahead   displaces 48 83 c4 18 5d c3, instruction at +4
          writes 5 of e9......!!`},

		{"more than a jump needs", `
			f: mov rax, [rdi+8]
			pop rbx
			pop rbp
			site: ret
			end:`, `
0x401000
  ahead   displaces 48 8b 47 08 5b 5d c3, instruction at +4
          writes 5 of e9......!!`},

		{"a jump that leaves", `
			f: mov rax, [rdi+8]
			pop rbx
			site: jmp rax
			end:`, `
0x401000
  ahead   displaces 48 8b 47 08 5b ff e0, instruction at +4
          writes 5 of e9......!!`},

		{"others come to the first", `
			f: nop
			1: mov rax, [rdi+8]
			dec eax
			site: jne 1b
			end:`, `
0x401001
  ahead   displaces 48 8b 47 08 ff c8 75 f8, instruction at +4
          writes 5 of e9......!!`},

		{"and to the site", `
			f: mov eax, edi
			add rsp, 8
			site: ret
			2: jmp site
			end:`, `
0x401000
  ahead   displaces 89 f8 48 83 c4 08 c3, instruction at +2
          writes 5 of e9..!!....`},

		{"one leaves on the way", `
			f: xor eax, eax
			je f
			pop rbp
			site: ret
			end:`, `
0x401000
  ahead   displaces 31 c0 74 fc 5d c3, instruction at +2, instruction at +4
          writes 5 of e9..!!..!!`},

		{"others come to one of them", `
			f: add rsp, 24
			1: pop rbp
			site: ret
			jmp 1b
			end:`, "something leads, or refers, to -1"},

		{"a call", `
			f: call rax
			pop rbx
			pop rbp
			site: ret
			end:`, "what is in front of it does not run into it"},

		{"a system call", `
			f: xor eax, eax
			syscall
			pop rbp
			site: ret
			end:`, "what is in front of it does not run into it"},

		{"a branch right in front", `
			f: add rsp, 24
			je f
			site: ret
			end:`, "what is in front of it does not run into it"},

		{"too little", `
			f: pop rbx
			pop rbp
			site: ret
			end:`, "the function begins"},

		{"another probe", `
			f: add rsp, 24
			taken: pop rbp
			site: ret
			end:`, "another probe is in the way"},

		{"another probe where the jump would be", `
			f: taken: add rsp, 24
			pop rbp
			site: ret
			end:`, "another probe is in the way"},

		{"too long", `
			f: movabs rax, [0x1122334455667788]
			pop rbx
			site: .byte 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x90
			end:`, "the instructions in front of it are too long"},

		{"someone's breakpoint", `
			f: mov eax, 1
			int3
			site: ret
			end:`, "what is in front of it does not run into it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, labels := assembled(t, tt.code)
			im := &patch.Image{Text: []patch.Part{{Addr: base, Code: code}}, Funcs: []arch.Addr{labels["f"]}}
			size := labels["end"] - base
			b := patch.NewBody(amd64.ISA, patch.Part{Addr: base, Code: code[:size]}, code[size:], patch.NewFlow(amd64.ISA, im))
			j := b.PlanAhead(labels["site"], func(a arch.Addr) bool { return a == labels["taken"] })
			if !strings.HasPrefix(tt.want, "\n") {
				if len(j.Ways) > 0 || j.Reason != tt.want {
					t.Errorf("got\n%v\nwant none: %s", j, tt.want)
				}
				return
			}
			if got := j.String(); got != strings.TrimPrefix(tt.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, tt.want)
			}
		})
	}
}

// checkAhead holds a plan to its promises, for any code.
func checkAhead(t *testing.T, j *patch.Jump, site arch.Addr, code []byte, flow *patch.Flow) {
	t.Helper()
	if len(j.Ways) == 0 {
		if j.Reason == "" {
			t.Fatal("it keeps the trap without a reason")
		}
		return
	}
	w := &j.Ways[0]
	if j.Addr+arch.Addr(j.Ahead) != site || w.Own > j.Ahead {
		t.Fatalf("%v: the jump takes what is not in front of %v", j, site)
	}
	code = code[j.Addr-base:]
	head, err := j.Head(w, base+0x10_0000)
	if err != nil {
		t.Fatalf("%v: %v", j, err)
	}
	off := 0
	for off < j.Ahead {
		in, err := amd64.ISA.Decode(code[off:], j.Addr+arch.Addr(off))
		if err != nil {
			t.Fatalf("%v: +%d is no instruction", j, off)
		}
		if _, ok := head.Copy(j.Addr + arch.Addr(off)); !ok {
			t.Fatalf("%v: +%d has no copy in %v", j, off, head)
		}
		if off > 0 && off < w.Own != slices.Contains(w.Inner, off) {
			t.Fatalf("%v: an instruction at +%d, but its bytes need not trap, or none", j, off)
		}
		off += in.Len
	}
	if _, ok := head.Copy(site); ok || off != j.Ahead {
		t.Fatalf("%v: the instructions in front end at +%d, in %v", j, off, head)
	}
	if to, ok := flow.Known(j.Addr+1, site); ok {
		t.Fatalf("%v: covers %v, which something leads to", j, to)
	}
	write, span := j.Write(w, j.Addr+0x1234_5678), j.Span(w)
	want := bytes.Clone(code[:span.End-span.Start])
	copy(want, write.New[:w.Own])
	want[j.Ahead] = 0xcc
	if !bytes.Equal(write.Old, code[:len(write.Old)]) || !bytes.Equal(write.New, want) || len(want) > patch.LongestSpan {
		t.Fatalf("%v: writes % x over % x, want % x", j, write.New, write.Old, want)
	}
}
