package symbol_test

import (
	"os"
	"slices"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// The notes of a program of ours, of both widths, and of one that other people have built.
func TestStaticProbes(t *testing.T) {
	for _, width := range []string{"-m64", "-m32"} {
		r, err := os.Open(testprog.Build(t, "statics", "-O2", width))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f, err := symbol.Open(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range f.StaticProbes() {
			names = append(names, p.Provider+":"+p.Name)
			fn, ok := f.FuncAt(p.Vaddr)
			if inlined := ok && fn.Name == "main"; !ok || fn.Name != p.Name && !inlined {
				t.Errorf("%s %s: at %#x, which is %s", width, p.Name, p.Vaddr, fn.Name)
			}
			if (p.Name == "guarded") != (p.Semaphore != 0) {
				t.Errorf("%s %s: semaphore %#x", width, p.Name, p.Semaphore)
			}
			if args, ok := symbol.StaticArgs(p.Args); !ok || len(args) == 0 {
				t.Errorf("%s %s: %q", width, p.Name, p.Args)
			}
		}
		if !slices.Equal(names, []string{"statics:plain", "statics:guarded"}) {
			t.Errorf("%s: %q", width, names)
		}
	}
}

func TestStaticArgs(t *testing.T) {
	const text = "-4@$-9 8@%rax 1@%r9b -2@%r10w 4@%edi 8@-16(%rbp) 4@(%rsp) 8@24(%rax,%r8,4) 8@$0xffffffffffffffff 1@%sil 2@8(%rcx,%rdx)"
	want := []symbol.StaticArg{
		{Size: 4, Signed: true, Value: -9}, {Size: 8, Base: "rax"}, {Size: 1, Base: "r9"}, {Size: 2, Signed: true, Base: "r10"},
		{Size: 4, Base: "rdi"}, {Size: 8, Value: -16, Base: "rbp", Memory: true}, {Size: 4, Base: "rsp", Memory: true},
		{Size: 8, Value: 24, Base: "rax", Index: "r8", Scale: 4, Memory: true}, {Size: 8, Value: -1}, {Size: 1, Base: "rsi"},
		{Size: 2, Value: 8, Base: "rcx", Index: "rdx", Scale: 1, Memory: true},
	}
	if got, ok := symbol.StaticArgs(text); !ok || !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	for _, bad := range []string{"8f@%xmm0", "8@%xmm1", "3@%rax", "8@global(%rip)", "8@", "@%rax", "8@(", "8@()", "8@(%rax,%rbx,3)", "x", "8@(,%rax,8)", "8@%r16"} {
		if args, ok := symbol.StaticArgs("4@%eax " + bad); ok || len(args) != 1 {
			t.Errorf("%q: %+v", bad, args)
		}
	}
}
