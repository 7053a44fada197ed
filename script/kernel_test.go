package script_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/btf"

	"kprobe/arch"
	"kprobe/script"
	"kprobe/script/debug"
)

// kernelTypes are a small kernel's: a function, structures that lead to one another, bit-fields, an enumeration.
func kernelTypes(t *testing.T) *btf.Spec {
	t.Helper()
	u32, char := &btf.Int{Name: "unsigned int", Size: 4}, &btf.Int{Name: "char", Size: 1, Encoding: btf.Signed}
	long := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	index := &btf.Int{Name: "__ARRAY_SIZE_TYPE__", Size: 4}
	state := &btf.Enum{Name: "state", Size: 4, Values: []btf.EnumValue{{Name: "STATE_NEW", Value: 1}, {Name: "STATE_OLD", Value: 7}}}
	name := &btf.Struct{Name: "qstr", Size: 24}
	file := &btf.Struct{Name: "file", Size: 48}
	name.Members = []btf.Member{{Name: "len", Type: u32}, {Name: "text", Type: &btf.Array{Type: char, Index: index, Nelems: 8}, Offset: 32}, {Name: "back", Type: &btf.Pointer{Target: file}, Offset: 128}}
	inner := &btf.Struct{Size: 8, Members: []btf.Member{{Name: "low", Type: u32, BitfieldSize: 3}, {Name: "high", Type: u32, Offset: 3, BitfieldSize: 5}}}
	file.Members = []btf.Member{{Name: "f_name", Type: name}, {Name: "f_next", Type: &btf.Pointer{Target: &btf.Const{Type: file}}, Offset: 192}, {Type: inner, Offset: 256}, {Name: "f_state", Type: state, Offset: 320}}
	proto := &btf.FuncProto{Return: long, Params: []btf.FuncParam{{Name: "file", Type: &btf.Pointer{Target: file}}, {Name: "count", Type: u32},
		{Name: "c", Type: u32}, {Name: "d", Type: u32}, {Name: "e", Type: u32}, {Name: "f", Type: u32}, {Name: "last", Type: long}}}
	b, err := btf.NewBuilder([]btf.Type{&btf.Func{Name: "read_file", Type: proto, Linkage: btf.GlobalFunc}, &btf.Func{Name: "read_none", Type: &btf.FuncProto{Return: &btf.Void{}}, Linkage: btf.GlobalFunc}}, nil)
	ok(t, err)
	raw, err := b.Marshal(nil, nil)
	ok(t, err)
	path := filepath.Join(t.TempDir(), "btf")
	ok(t, os.WriteFile(path, raw, 0o600))
	f, err := os.Open(path)
	ok(t, err)
	defer f.Close()
	spec, err := btf.LoadSpecFromReader(f)
	ok(t, err)
	return spec
}

// Scripts on a kernel have the parameters of its functions, its types and constants, out of its BTF.
func TestKernelTypes(t *testing.T) {
	spec := kernelTypes(t)
	for _, tt := range []struct{ script, refused string }{
		{`fentry:read_file { @[args.count] = count(); printf("%s %d %d\n", args.file->f_name.text, args.file.f_next->f_name.back->low, args.last); print(*args.file); print(args); }`, ""},
		{`fexit:read_file /retval < 0/ { print((args.file->high, retval)); static_assert(typeinfo(retval) == typeinfo((int64)1)); }`, ""},
		{`kprobe:f { $f = (struct file *)arg0; if ($f->f_state == STATE_OLD) { print(STATE_NEW); printf("%s", $f->f_state); } static_assert(sizeof(struct file) == 48 && offsetof(struct file, f_name.back) == 16); }`, ""},
		{`struct mine { struct qstr q; struct file *f; } kprobe:f { print(((struct mine *)arg0)->f->f_name.len); static_assert(sizeof(struct mine) == 32); }`, ""},
		{`struct task_struct { int tgid; struct task_struct *real_parent, *group_leader; char comm[16]; } kprobe:f { @[pcomm] = ppid(); print((ppid, pcomm(), leader_comm, leader_tid())); }`, ""},
		{`kretprobe:read_file { print((args.count, arg0, retval)); }`, ""},
		{`fentry:read_file { print(args.nope); }`, "Can't find function parameter nope"},
		{`fentry:read_none { print(args); }`, "read_none has no parameters"},
		{`fentry:read_all { print(args.file); }`, "know no function read_all"},
		{`fentry:read_* { print(args.file); }`, "parameters of their own"},
		{`kprobe:read_file+4 { print(args.file); }`, "not behind its beginning"},
		{`kprobe:f { print(((struct file *)arg0)->nope); }`, "does not contain a field named 'nope'"},
		{`kprobe:f { print(STATE_LATER); }`, "Unknown identifier: 'STATE_LATER'"},
		{`kprobe:f { print((struct absent *)arg0); }`, "Cannot resolve unknown type"},
		{`kprobe:f { print(ncpus); }`, "how many processors the kernel has is not known"},
		{`kprobe:f { @[ustack] = count(); }`, "ustack can not be used on a kernel yet"},
		{`kprobe:f { print(cgroup_path(1)); }`, "cgroup_path() can not be used on a kernel yet"},
		{`kprobe:f { print(cgroupid("/")); }`, "cgroupid() can not be used on a kernel yet"},
	} {
		s, err := script.Compile(tt.script, script.Options{Kernel: true, KernelTypes: spec})
		switch {
		case err == nil && tt.refused == "":
			ok(t, s.Verify())
		case err == nil:
			t.Errorf("%s\nis not refused", tt.script)
		case tt.refused == "" || !strings.Contains(err.Error(), tt.refused):
			t.Errorf("%s\nis refused: %v", tt.script, err)
		}
	}
}

// Constants that headers define are known, whether the script includes them or not, but for what it defines itself.
func TestHeaders(t *testing.T) {
	out, told, _, err := run("#include <errno.h>\n#include <sys/socket.h>\n#include <syscall.h>\n#include <signal.h>\n"+`begin { print((AF_INET6, EPERM, strerror(ENOENT), __NR_read, syscall_name(SYS_execve), SIGKILL)); }`, script.Options{Quiet: true}, nil, nil)
	if err != nil || strings.TrimSpace(out) != "(10, 1, No such file or directory, 0, execve, 9)" {
		t.Errorf("%q %q %v", out, told, err)
	}
	out, _, _, err = run(`begin { print(strerror(EPERM)); exit() }`, script.Options{Quiet: true, Include: []string{"errno.h"}}, nil, nil)
	if err != nil || strings.TrimSpace(out) != "Operation not permitted" {
		t.Errorf("%q %v", out, err)
	}
	for _, tt := range []struct{ text, want string }{
		{`begin { print((AF_INET, EPERM, IPPROTO_TCP, ICMP_ECHO, DT_REG, S_IFREG, O_CREAT | O_RDWR, SIGINT, AT_FDCWD, CLONE_NEWNS)); print(ntop(AF_INET, 0x0100007f)); }`,
			"(2, 1, 6, 8, 8, 32768, 66, 2, -100, 131072)\n127.0.0.1"},
		{`begin { print((S_ISREG(0100644), S_ISDIR(0100644), S_ISDIR(040755), S_ISLNK(0120777), S_ISSOCK(0140000), S_ISBLK(060000), S_ISCHR(020000), S_ISFIFO(010000))); }`,
			"(true, false, true, true, true, true, true, true)"},
		{"#define EPERM 77\n#define N EINTR\n#define EINTR 78\nstruct S { char c[IFNAMSIZ]; int x[AF_INET6]; };\nenum e { A = EPIPE, B };\n" +
			`begin { print((EPERM, N, sizeof(struct S), (int64)B)); unroll(AF_INET) { print(comptime AF_INET == 2) } }`, "(77, 78, 56, 33)\ntrue\ntrue"},
	} {
		out, told, _, err := run(tt.text, script.Options{Quiet: true}, nil, nil)
		if err != nil || strings.TrimSpace(out) != tt.want {
			t.Errorf("%s prints %q, not %q; %s %v", tt.text, out, tt.want, told, err)
		}
	}
	// Enumerations of the kernel have constants, too, where no probe is on a program.
	out, told, _, err = run(`begin { print((STATE_OLD, (int64)STATE_OLD, sizeof(STATE_OLD))); }`, script.Options{Quiet: true, KernelTypes: kernelTypes(t)}, nil, nil)
	if err != nil || strings.TrimSpace(out) != "(STATE_OLD, 7, 4)" {
		t.Errorf("%q %q %v", out, told, err)
	}
	// Of another machine the numbers are its own, or not known.
	out, _, _, err = run(`begin { print((O_DIRECTORY, O_DIRECT, O_CREAT, EPERM)); }`, script.Options{Quiet: true, Machine: arch.ARM64}, nil, nil)
	if err != nil || strings.TrimSpace(out) != "(16384, 65536, 64, 1)" {
		t.Errorf("%q %v", out, err)
	}
	for _, name := range []string{"MAP_32BIT", "__NR_open", "PTRACE_GETREGS"} {
		if _, err := script.Compile("begin { print("+name+") }", script.Options{Machine: arch.ARM64}); err == nil || !strings.Contains(err.Error(), "Unknown identifier: '"+name+"'") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Constants come from the headers that a script includes, where these lie: from those beside it first.
func TestHeaderFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"own.h":         "#include \"below/other.h\"\n#define OWN 0x10 /* a comment */\n#define BOTH (OWN | \\\n OTHER)\n#define LOOP LOOP\n#define EPERM 99\nenum kinds { FIRST = 3, // one\n SECOND };\n",
		"below/other.h": "#include \"../own.h\"\n# define OTHER 0x100\n#ifdef X\n#define WAYS 1\n#else\n#define WAYS 2\n#endif\n",
	} {
		ok(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	const text = `begin { print((OWN, BOTH, (int64)SECOND, EPERM, ENOENT)); printf("%s", FIRST) }`
	const want = "(16, 272, 4, 99, 2)\nFIRST"
	for _, tt := range []struct {
		text, want string
		o          script.Options
	}{
		{"#include \"own.h\"\n" + text, want, script.Options{Name: filepath.Join(dir, "a.bt")}},
		{text, want, script.Options{Include: []string{filepath.Join(dir, "own.h")}}},
		{"#include <own.h>\nbegin { print(BOTH) }", "272", script.Options{IncludeFolders: []string{dir}}},
	} {
		tt.o.Quiet = true
		out, told, _, err := run(tt.text, tt.o, nil, nil)
		if err != nil || strings.TrimSpace(out) != tt.want {
			t.Errorf("%s prints %q, not %q; %s %v", tt.text, out, tt.want, told, err)
		}
	}
	if _, err := script.Compile("#include \"none.h\"\n#include <none.h>\nbegin { }", script.Options{}); err == nil || !strings.Contains(err.Error(), "\"none.h\": file not found") {
		t.Errorf("a file that is not there: %v", err)
	}
	// What is defined in two ways, or by itself, is no constant.
	for _, name := range []string{"WAYS", "LOOP", "NOTHING"} {
		if _, err := script.Compile("begin { print("+name+") }", script.Options{Include: []string{filepath.Join(dir, "own.h")}}); err == nil || !strings.Contains(err.Error(), "Unknown identifier: '"+name+"'") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Types of a kernel are listed as C defines them, and parameters as C declares them.
func TestListStructs(t *testing.T) {
	k := script.Listed{Types: kernelTypes(t)}
	for _, tt := range []struct {
		pattern string
		verbose bool
		want    string
	}{
		{"struct *", false, "struct file\nstruct qstr"},
		{"enum st*", false, "enum state"},
		{"union *", false, ""},
		{"enum state", true, "enum state {\n\tSTATE_NEW = 1,\n\tSTATE_OLD = 7,\n};"},
		{"struct qstr", true, "struct qstr {\n\tunsigned int len;\n\tchar text[8];\n\tstruct file *back;\n};"},
		{"struct file", true, "struct file {\n\tstruct qstr f_name;\n\tconst struct file *f_next;\n\tstruct {\n\t\tunsigned int low: 3;\n\t\tunsigned int high: 5;\n\t};\n\tenum state f_state;\n};"},
	} {
		all, err := k.List(tt.pattern, tt.verbose)
		ok(t, err)
		if got := strings.Join(all, "\n"); got != tt.want {
			t.Errorf("%s:\n%s\nnot\n%s", tt.pattern, got, tt.want)
		}
	}
}

// Declarations of C are read from the name outwards.
func TestDeclarations(t *testing.T) {
	integer, void := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, (*btf.Void)(nil)
	pointer := func(to btf.Type) btf.Type { return &btf.Pointer{Target: to} }
	takes := func(p btf.Type) btf.Type {
		return &btf.FuncProto{Return: void, Params: []btf.FuncParam{{Name: "p", Type: p}}}
	}
	for want, typ := range map[string]btf.Type{
		"int": integer, "void *": pointer(void), "int *": pointer(integer), "const int *": pointer(&btf.Const{Type: integer}), "int *const": &btf.Const{Type: pointer(integer)},
		"int **": pointer(pointer(integer)), "int [3]": &btf.Array{Type: integer, Nelems: 3}, "int *[3]": &btf.Array{Type: pointer(integer), Nelems: 3},
		"int (*)[3]": pointer(&btf.Array{Type: integer, Nelems: 3}), "void (*)(int)": pointer(takes(integer)), "void (*)(void (*)(int))": pointer(takes(pointer(takes(integer)))),
		"volatile struct s *": pointer(&btf.Volatile{Type: &btf.Struct{Name: "s"}}), "size_t": &btf.Typedef{Name: "size_t", Type: integer},
	} {
		if got := debug.Written(typ); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

// The group of all others has a path too.
func TestRootGroup(t *testing.T) {
	st, err := os.Stat("/sys/fs/cgroup")
	if err != nil {
		return // there are no groups
	}
	out, _, _, err := run(fmt.Sprintf("begin { print(cgroup_path(%d)); exit() }", st.Sys().(*syscall.Stat_t).Ino), script.Options{Quiet: true}, nil, nil)
	if err != nil || strings.TrimSpace(out) != "unified:/" {
		t.Errorf("%q %v", out, err)
	}
}
