package conform

import (
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/conform"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// What is promised of processes and kernels alike; target/kernel has it of those.
func TestConform(t *testing.T) {
	path := testprog.Build(t, "conform", "-O2")
	conform.Run(t, func(t testing.TB) *conform.Victim {
		p := testprog.Start(t, path)
		return &conform.Victim{
			Start: func(t testing.TB, round string) func() []string {
				p.Send("%s", round)
				return func() (said []string) {
					for line := p.Line(); line != "done"; line = p.Line() {
						said = append(said, line)
					}
					return said
				}
			},
			Attach:  func(t testing.TB, o *kprobe.Options) *kprobe.Session { return harness.Attach(t, p.Pid, o) },
			Text:    func(t testing.TB) []byte { return rawText(t, p.Pid, path) },
			Visible: true,
			Data:    arch.Addr(mapping(t, p.Pid, "[stack]").Start),
			Nowhere: 0x1000,
		}
	})
}

// elsewhere names the tests of TestConform that -test.skip leaves out.
func elsewhere(names ...string) string { return "^TestConform$/^(" + strings.Join(names, "|") + ")$" }
