package testprog

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// moduleFlags make code that can stand in a kernel of x86-64: no red zone under
// interrupts, no vector registers, its addresses in the highest 2 GiB.
var moduleFlags = []string{"-DMODULE", "-g", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-pie", "-mcmodel=kernel",
	"-mno-red-zone", "-mgeneral-regs-only", "-fcf-protection=none", "-fno-stack-protector", "-fno-jump-tables",
	"-fno-asynchronous-unwind-tables", "-nostdlib", "-r", "-Wl,--build-id=none"}

// BuildModule builds testdata/NAME.c as a module of Linux on x86-64 and returns
// its path. What a kernel asks of its modules, and differs from one build of it
// to the next, is taken from a module that was built for it, like; so neither its
// headers nor its tree is needed. The kernel must allow modules without versions
// of symbols (MODULE_FORCE_LOAD).
func BuildModule(t testing.TB, name, like string) string {
	t.Helper()
	frame, err := moduleFrame(name, like)
	if err != nil {
		t.Fatalf("testprog: %s: %v", like, err)
	}
	dir := t.TempDir()
	files, err := sources.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if path.Ext(f.Name()) != ".h" && f.Name() != name+".c" {
			continue
		}
		b, err := sources.ReadFile("testdata/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "frame.S"), []byte(frame), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("gcc", append(slices.Clone(moduleFlags), "-o", name+".ko", name+".c", "frame.S")...)
	cmd.Dir = dir
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("testprog: %s: %v\n%s", cmd, err, msg)
	}
	return filepath.Join(dir, name+".ko")
}

// moduleFrame is the assembly text of what a module has besides its code: the
// struct module, with its name and where the kernel puts the calls at load and
// unload, and the kernel's version.
func moduleFrame(name, like string) (string, error) {
	f, err := elf.Open(like)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, this, relocations := f.Section(".modinfo"), f.Section(".gnu.linkonce.this_module"), f.Section(".rela.gnu.linkonce.this_module")
	if info == nil || this == nil || relocations == nil || f.Machine != elf.EM_X86_64 {
		return "", errors.New("not a module of x86-64")
	}
	words, err := info.Data()
	if err != nil {
		return "", err
	}
	_, magic, found := bytes.Cut(append([]byte{0}, words...), []byte("\x00vermagic="))
	magic, _, ended := bytes.Cut(magic, []byte{0})
	fields, err := this.Data()
	if err != nil {
		return "", err
	}
	itsName := strings.TrimSuffix(filepath.Base(like), ".ko")
	at := bytes.Index(fields, append([]byte(itsName), 0))
	if !found || !ended || at < 0 {
		return "", errors.New("no name, or no version")
	}
	syms, err := f.Symbols()
	if err != nil {
		return "", err
	}
	calls, err := relocations.Data()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".section .modinfo,\"a\"\n.asciz \"license=GPL\", \"name=%s\", \"vermagic=%s\"\n", name, magic)
	fmt.Fprintf(&b, ".section .gnu.linkonce.this_module,\"aw\"\n.globl __this_module\n.type __this_module,@object\n.balign 64\n__this_module:\n")
	fmt.Fprintf(&b, ".org %d\n.asciz %q\n", at, name)
	const entry = 24
	type call struct {
		at     uint64
		symbol string
	}
	var order []call
	for ; len(calls) >= entry; calls = calls[entry:] {
		sym := int(f.ByteOrder.Uint32(calls[12:]))
		if sym == 0 || sym > len(syms) {
			return "", errors.New("a relocation without a symbol")
		}
		order = append(order, call{f.ByteOrder.Uint64(calls), syms[sym-1].Name}) // Symbols leaves the first out
	}
	slices.SortFunc(order, func(a, b call) int { return int(a.at) - int(b.at) })
	for _, c := range order {
		fmt.Fprintf(&b, ".org %d\n.quad %s\n", c.at, c.symbol)
	}
	fmt.Fprintf(&b, ".org %d\n.size __this_module, %d\n.section .note.GNU-stack,\"\",@progbits\n", this.Size, this.Size)
	return b.String(), nil
}
