package foreign

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
)

// The command itself, on an arm64 machine: it traces a program's calls and returns, and says what it
// does there and what not.
func TestCommandOnARM64(t *testing.T) {
	testprog.Long(t, "it boots a guest")
	tool := filepath.Join(t.TempDir(), "kprobe")
	build := exec.Command("go", "build", "-o", tool, "kprobe/cmd/kprobe")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	program := testprog.Build(t, "jumpers", "-O2", "-static", "-no-pie", "CC=aarch64-linux-gnu-gcc")
	v := vmtest.Boot(t, vm.Config{Machine: "arm64", Memory: 1024, Files: map[string]string{"/bin/kprobe": tool, "/bin/jumpers": program}})
	for _, c := range []struct {
		command string
		says    []string
	}{
		{"kprobe doctor", []string{"on arm64: processes of 64-bit arm64"}},
		{"echo 3 | jumpers", []string{"jumper 3 5\n"}},
		{"echo 3 | kprobe trace -n 3 'p:ev jumper a=%x0 b=%x1' -- jumpers",
			[]string{"ev: (jumper+0x0/0xc) a=0x0 b=0x0\n", "a=0x0 b=0x1\n", "a=0x1 b=0x2\n", "jumper 3 5\n"}},
		{"echo 3 | kprobe trace -n 3 'r:ev jumper $retval' -- jumpers",
			[]string{"<- jumper) arg1=0\n", "arg1=1\n", "arg1=5\n", "jumper 3 5\n"}},
		{`echo 3 | kprobe script -e 'uprobe:/bin/jumpers:jumper { @b = sum(arg1); @x = max(reg("x1")); @n[pid == tid] = count(); @s[ustack(1)] = count() } uretprobe:/bin/jumpers:jumper { @r = max(retval); @f[func] = count(); @a = sum(arg0) }' -c jumpers`,
			[]string{"jumper 3 5\n", "@b: 3\n", "@x: 2\n", "@n[true]: 3\n", "jumper+0", "@r: 5\n", "@f[jumper]: 3\n", "@a: 1\n"}},
		{"echo 3 | kprobe script -e 'uprobe:/bin/jumpers:jumper { @[cpu] = count() }' -c jumpers 2>&1 || true", []string{"calls get_smp_processor_id, which no program can in targets of arm64"}},
		{"echo 3 | kprobe stat 'p jumper' 'r jumper' -- jumpers 2>&1", []string{"jumper 3 5\n", "r_jumper_0 at jumpers:jumper takes"}},
		{"(while echo 300; do sleep 0.2; done) | jumpers >/dev/null & sleep 1; kprobe stat -p $(pidof jumpers) -d 5s 'p jumper' | awk '$3 > 0 {print $1, \"counted\"}'; kill $(pidof jumpers)",
			[]string{"p_jumper_0 counted"}},
		{"sleep 1000 & kprobe plan -p $! 'p exit' || true", []string{"kprobe: "}},
	} {
		out, err := v.Run(c.command)
		for _, want := range c.says {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v: no %q in\n%s", c.command, err, want, out)
			}
		}
	}
}
