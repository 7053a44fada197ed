package harness

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// I386 runs tests of the suite once more, in a process of their own, on the same programs built for i386. So many pass at
// least. Left out are the tests that skip names, and the cases that cases is a pattern of.
func I386(t *testing.T, least int, run, skip, cases string) {
	t.Helper()
	testprog.Programs32.Need(t)
	skip = "^(" + skip + ")$"
	if cases != "" {
		skip += "|" + cases
	}
	cmd := exec.Command(os.Args[0], "-test.run=^("+run+")$", "-test.skip="+skip, "-test.v", "-test.short")
	cmd.Env = append(os.Environ(), "KPROBE_TEST_CFLAGS=-m32")
	out, err := cmd.CombinedOutput()
	if passed := bytes.Count(out, []byte("--- PASS")); err != nil || passed < least {
		t.Errorf("%v, %d passed:\n%s", err, passed, OfFailed(string(out)))
	}
}

// OfFailed takes the tests that passed out of the output of "go test -v": the lines that matter must not drown.
func OfFailed(out string) string {
	const run = "=== RUN   "
	var kept strings.Builder
	tests := strings.Split(out, run)
	for i, test := range tests {
		name, _, _ := strings.Cut(test, "\n")
		name, _, _ = strings.Cut(name, "/")
		// Of a process that died, the last test has no result.
		if i == len(tests)-1 || strings.Contains(out, "--- FAIL: "+name+" ") {
			kept.WriteString(run + test)
		}
	}
	return kept.String()
}
