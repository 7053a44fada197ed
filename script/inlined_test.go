package script_test

import (
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
)

// A function that is inlined is probed there where the script wants that, and else it is told that copies are left out.
func TestInlined(t *testing.T) {
	path := testprog.Build(t, "inlines", "-O2")
	p := testprog.Start(t, path)
	s := attach(t, p.Pid)
	const config = "config = { probe_inline = 1 } "
	for _, tt := range []struct{ script, out, told, refusal string }{
		{`uprobe:%:gone { @ = count() }`, "", "gone has 3 inlined copies, not probed", "Unable to attach probe"},
		{config + `uprobe:%:gone { @[probe, func] = count() }`, "@[uprobe:%:gone, once]: 5\n@[uprobe:%:gone, twice]: 10", "", ""},
		{`uprobe:%:both { @[func, arg0] = count() }`, "@[both, 4]: 5", "both has 1 inlined copy, not probed", ""},
		{config + `uprobe:%:both { @[probe, func] = count() }`, "@[uprobe:%:both, both]: 5\n@[uprobe:%:both, main]: 5", "", ""},
		{config + `uprobe:%:both { @ = arg0 }`, "", "", "The arg0 builtin can not be used where both is inlined"},
		{config + `uprobe:%:both { @ = args.a }`, "", "", "args: where both is inlined"},
		{config + `uretprobe:%:both { @ = count() }`, "@: 5", "both has 1 inlined copy, where a return cannot be probed", ""},
		{config + `uprobe:%:bot* { @[args.a] = count() }`, "@[4]: 5", "is a pattern", ""},
		{config + `uprobe:%:once { @ = count() }`, "@: 5", "", ""},
		{`uprobe:%:once { @ = count() }`, "@: 5", "", ""},
		{`config = { probe_inline = 2 } begin { }`, "", "", "Invalid value for probe_inline"},
	} {
		whole := strings.NewReplacer("%", path)
		out, told, _, err := run(whole.Replace(tt.script), script.Options{PID: p.Pid, Quiet: true}, s, func() { p.Round("5") })
		lines := strings.Split(strings.TrimSpace(out), "\n") // entries of one count are in the order of addresses
		slices.Sort(lines)
		out = strings.Join(lines, "\n")
		if tt.refusal == "" && out != whole.Replace(tt.out) || tt.told != "" && !strings.Contains(told, tt.told) || tt.told == "" && told != "" ||
			(err == nil) != (tt.refusal == "") || err != nil && !strings.Contains(err.Error(), tt.refusal) {
			t.Errorf("%s\nprints %q\ntells %q, %v", tt.script, out, told, err)
		}
	}
}
