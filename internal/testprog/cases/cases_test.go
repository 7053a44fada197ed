package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const some = `# a note
NAME printed
PROG one
     two
EXPECT got one
       two
RETURN_CODE 0

NAME fails
RUN {{BPFTRACE}} -x "begin { }"
EXPECT_NONE nothing
EXPECT_REGEX ^stdin:1:2: ERROR: no

NAME fails alike
RUN {{BPFTRACE}} -x "begin { }"
EXPECT something

NAME another machine's
PROG x
EXPECT y
ARCH s390x | ppc64

NAME needs what is not here
PROG x
EXPECT y
REQUIRES false

NAME no end
RUN sleep 100
EXPECT x
TIMEOUT 1

NAME after
RUN echo "Attached 1 probe"; for i in 1 2 3 4 5 6 7 8 9; do [ -e came ] && break; sleep 0.2; done; ls
AFTER touch came
CLEANUP rm came
EXPECT came
`

// A file of cases is read, each case is run, and the table says what came of them.
func TestCases(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "bpftrace")
	script := "#!/bin/sh\nif [ \"$1\" = -x ]; then echo \"stdin:1:2: ERROR: no 'name' at 17\"; exit 1; fi\necho \"got $2\"\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	all, err := Read("suite", strings.NewReader(some))
	if err != nil || len(all) != 7 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	if c := all[0]; c.Prog != "one\ntwo" || c.Expect[0].Text != "got one\ntwo" || c.Status != 0 || c.Timeout != 5*time.Second {
		t.Errorf("read as %+v", c)
	}
	r := &Runner{Bpftrace: program, Dir: dir, Machine: "x86_64"}
	var results []Result
	for _, c := range all {
		results = append(results, r.Run(c))
	}
	var table strings.Builder
	if err := Table(&table, results); err != nil {
		t.Fatal(err)
	}
	want := `file   pass  fail  not for here
suite  2     3     2
all    2     3     2

cases  why                      one of them
2      no _ at _                suite: fails
1      for other machines       suite: another machine's
1      needs: false             suite: needs what is not here
1      comes to no end in time  suite: no end
`
	if table.String() != want {
		t.Errorf("the table is\n%s", &table)
	}
	if _, err := os.Stat(filepath.Join(dir, "came")); err == nil {
		t.Error("nothing was cleaned up")
	}
}

// What is no case is refused with its place.
func TestNoCases(t *testing.T) {
	for text, want := range map[string]string{
		"NAME a\nPROG b\nNONSENSE c\n":   `f:3: no field "NONSENSE"`,
		"NAME a\nEXPECT b\n":             `case "a": a case has a NAME`,
		"NAME a\nPROG b\nTIMEOUT soon\n": "f:3: strconv",
	} {
		if _, err := Read("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
