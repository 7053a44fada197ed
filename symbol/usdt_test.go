package symbol_test

import (
	"os"
	"path/filepath"
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
			args := f.StaticArgs(&p)
			if unread := slices.ContainsFunc(args, func(a symbol.StaticArg) bool { return a.Unread != "" }); len(args) == 0 || unread {
				t.Errorf("%s %s: %q: %+v", width, p.Name, p.Args, args)
			}
		}
		if !slices.Equal(names, []string{"statics:plain", "statics:guarded"}) {
			t.Errorf("%s: %q", width, names)
		}
	}
}

func TestStaticArgs(t *testing.T) {
	const source = `int counter = 7; long table[8]; static int only; int main(void) { return only; }`
	const at = 0x1000
	type want = symbol.StaticArg
	none := func(text, why string) want { return want{Size: 8, Unread: text + ": " + why} }
	for _, pie := range []string{"-pie", "-no-pie"} {
		flags := []string{"-O1", pie, "-fno-pie"}
		if pie == "-pie" {
			flags[2] = "-fpie"
		}
		path := filepath.Join(t.TempDir(), "operands")
		testprog.CompileText(t, path, append([]string{"gcc"}, flags...), "operands.c", source)
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f, err := symbol.Open(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		addr := func(name string) int64 { return int64(f.Lookup(name)[0].Addr) }
		moved := func(text, name string, a want) want {
			if pie == "-pie" {
				return none(text, "the address of "+name+" is not the same in each process")
			}
			return a
		}
		counter, table := addr("counter")-at, addr("table")-at
		const operand = "it is in no general register, nor in memory by one"
		for text, want := range map[string]want{
			"-4@$-9": {Size: 4, Signed: true, Value: -9}, "8@%rax": {Size: 8, Base: "rax"}, "1@%r9b": {Size: 1, Base: "r9"},
			"-2@%r10w": {Size: 2, Signed: true, Base: "r10"}, "4@%edi": {Size: 4, Base: "rdi"}, "1@%sil": {Size: 1, Base: "rsi"},
			"8@$0xffffffffffffffff": {Size: 8, Value: -1},
			"8@-16(%rbp)":           {Size: 8, Value: -16, Base: "rbp", Memory: true},
			"4@(%rsp)":              {Size: 4, Base: "rsp", Memory: true},
			"8@8+16(%rsp)":          {Size: 8, Value: 24, Base: "rsp", Memory: true},
			"8@24(%rax,%r8,4)":      {Size: 8, Value: 24, Base: "rax", Index: "r8", Scale: 4, Memory: true},
			"2@8(%rcx,%rdx)":        {Size: 2, Value: 8, Base: "rcx", Index: "rdx", Scale: 1, Memory: true},

			"-4@counter(%rip)":      {Size: 4, Signed: true, Value: counter, Base: "rip", Memory: true},
			"4@counter":             {Size: 4, Value: counter, Base: "rip", Memory: true},
			"8@table+16(%rip)":      {Size: 8, Value: table + 16, Base: "rip", Memory: true},
			"8@16+table-8(%rip)":    {Size: 8, Value: table + 8, Base: "rip", Memory: true},
			"8@table(,%rbx,8)":      {Size: 8, Value: table, Base: "rip", Index: "rbx", Scale: 8, Memory: true},
			"8@table-8(%rax)":       moved("8@table-8(%rax)", "table", want{Size: 8, Value: addr("table") - 8, Base: "rax", Memory: true}),
			"8@table(%rax,%rbx,8)":  moved("8@table(%rax,%rbx,8)", "table", want{Size: 8, Value: addr("table"), Base: "rax", Index: "rbx", Scale: 8, Memory: true}),
			"8@$table+8":            moved("8@$table+8", "table", want{Size: 8, Value: addr("table") + 8}),
			"8@other(%rip)":         none("8@other(%rip)", "the file has no symbol other"),
			"8@.LC0(%rip)":          none("8@.LC0(%rip)", "the file has no symbol .LC0"),
			"8@t@GOTPCREL(%rip)":    none("8@t@GOTPCREL(%rip)", operand),
			"8@table+counter(%rip)": none("8@table+counter(%rip)", operand),
			"8@-table(%rip)":        none("8@-table(%rip)", operand),
			"8@table+(%rip)":        none("8@table+(%rip)", operand),
			"8@--8(%rax)":           none("8@--8(%rax)", operand),
			"8@%fs:table@tpoff":     none("8@%fs:table@tpoff", operand),
			"8@%xmm1":               none("8@%xmm1", operand),
			"8@0x1234":              none("8@0x1234", operand),
			"8@":                    none("8@", operand),
			"8@(":                   none("8@(", operand),
			"8@()":                  none("8@()", operand),
			"8@(%rax,%rbx,3)":       none("8@(%rax,%rbx,3)", operand),
			"8@(,%rax,8)":           none("8@(,%rax,8)", operand),
			"8@%r16":                none("8@%r16", operand),
			"8@$":                   none("8@$", "the file has no symbol $"),
			"8f@%xmm0":              none("8f@%xmm0", "it is no integer of 1, 2, 4 or 8 bytes"),
			"3@%rax":                none("3@%rax", "it is no integer of 1, 2, 4 or 8 bytes"),
			"@%rax":                 none("@%rax", "it is no integer of 1, 2, 4 or 8 bytes"),
			"x":                     none("x", "it is no integer of 1, 2, 4 or 8 bytes"),
		} {
			last := symbol.StaticArg{Size: 4, Base: "rax"}
			got := f.StaticArgs(&symbol.StaticProbe{Vaddr: at, Args: text + " 4@%eax"})
			if !slices.Equal(got, []symbol.StaticArg{want, last}) {
				t.Errorf("%s: %q: %+v\nwant %+v", pie, text, got, want)
			}
		}
	}
}
