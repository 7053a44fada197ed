package scale_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/trace"
)

// busy is a program for node that is driven as testprog's are: a round makes strings, objects,
// numbers, compiled functions and garbage, and says what came out.
const busy = `
const zlib = require('zlib'), crypto = require('crypto');
function work(n) {
	let h = 0;
	for (let i = 0; i < n; i++) {
		const o = {a: i, b: [i, String(i).repeat(3)], c: new Map([[i, h]])};
		const s = JSON.stringify(o) + [...o.c.keys()].join() + s2(i);
		h = (Math.imul(h, 31) + s.length + s.charCodeAt(i % s.length)) | 0;
	}
	return h + ' ' + crypto.createHash('sha256').update(zlib.gzipSync(Buffer.alloc(n, 7))).digest('hex');
}
function s2(i) { return /(\d+)5/.exec(i + '5')[1] + new Date(i * 1e6).toISOString(); }
console.log('ready');
require('readline').createInterface({input: process.stdin}).on('line', (line) => {
	console.log(work(Number(line)));
	console.log('done');
}).on('close', () => process.exit(0));
`

// The most code that a program of the tests has, and the strangest: V8 maps a part of it a
// second time, and runs that. All of it is probed, answers as before, and is as before when
// the probes have gone.
func TestAllOfNode(t *testing.T) {
	node, err := exec.LookPath("node")
	testprog.Need(t, "node", err == nil)
	script := filepath.Join(t.TempDir(), "busy.js")
	if err := os.WriteFile(script, []byte(busy), 0o644); err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, exec.Command(node, script))
	p.Expect("ready")
	want := strings.Join(p.Round("2000"), "\n")
	same := func(when string) {
		t.Helper()
		if got := strings.Join(p.Round("2000"), "\n"); got != want {
			t.Errorf("%s it says %s, not %s", when, got, want)
		}
	}
	s := attach(t, p.Pid, nil)
	module := "node"
	if len(s.Symbols().ModulesNamed("libnode")) > 0 { // Debian's has nearly all of it there
		module = "libnode"
	}
	defs, least := []string{"p libc.so.6:*", "p " + module + ":*"}, 300
	if testing.Short() { // the part that is mapped a second time
		defs, least = []string{"p libc.so.6:*", "p " + module + ":Builtins_*"}, 200
	}
	st, err := trace.NewStat(s, false, defs...)
	if err != nil {
		t.Fatal(err)
	}
	same("under traps")
	s.WaitOptimized()
	same("under jumps")
	rows, err := st.Rows()
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, r := range rows {
		if r.Hits > 0 {
			hit++
		}
		if r.Missed > 0 {
			t.Errorf("%s has missed %d of %d", r.Place, r.Missed, r.Missed+r.Hits)
		}
	}
	t.Logf("%d places, %d of them hit, %d left out", len(rows), hit, len(st.LeftOut()))
	if hit < least || len(st.LeftOut()) > len(rows)/100 {
		t.Errorf("of %d places %d were hit, and %d left out: %v", len(rows), hit, len(st.LeftOut()), st.LeftOut()[0])
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	same("after the session")
	diffs, err := testprog.TextDiff(p.Pid)
	if err != nil || len(diffs) > 0 {
		t.Errorf("its text: %v, %v", err, diffs)
	}
}
