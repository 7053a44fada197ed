package vm

import (
	"slices"
	"testing"
)

// What may be asked for is the beginning of a version, and what Debian calls its kernels is read right.
func TestReleaseNames(t *testing.T) {
	for name, want := range map[string]release{
		"6.1.0-56-cloud-amd64":                {"6.1.0-56", "cloud-amd64"},
		"6.1.0-0.deb11.48-rt-amd64":           {"6.1.0-0.deb11.48", "rt-amd64"},
		"6.12.90+deb13.1-amd64":               {"6.12.90+deb13.1", "amd64"},
		"7.3-cloud-amd64":                     {"7.3", "cloud-amd64"},
		"6.12":                                {"6.12", ""},
		"5.10.0-46-s390x":                     {"5.10.0-46", "s390x"},
		"7.2.13+deb14-arm64-16k":              {"7.2.13+deb14", "arm64-16k"},
		"6.12.117+deb13-cloud-amd64-unsigned": {"6.12.117+deb13", "cloud-amd64-unsigned"},
	} {
		if got, err := parseRelease(name); got != want || err != nil {
			t.Errorf("%s is read as %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "cloud-amd64", "newest"} {
		if got, err := parseRelease(name); err == nil {
			t.Errorf("%q is read as %+v", name, got)
		}
	}
	for _, c := range []struct {
		version, asked string
		want           bool
	}{
		{"6.1.0-56", "6.1", true}, {"6.12.43+deb13", "6.1", false}, {"6.12.43+deb13", "6.12", true},
		{"6.1.0-56", "6.1.0-5", false}, {"6.1.0-56", "6.1.0-56", true}, {"7.3.4+deb13", "7", true},
	} {
		if got := (release{c.version, "a"}).is(release{c.asked, "a"}); got != c.want {
			t.Errorf("%s is %s: %v", c.version, c.asked, got)
		}
	}
	if (release{"6.1", "rt-amd64"}).is(release{"6.1", "amd64"}) {
		t.Error("one flavour is taken for another")
	}
	got := []release{{"6.1.0-9", ""}, {"6.12.9", ""}, {"6.1.0-56", ""}, {"5.10.0-46", ""}, {"6.12.90+deb13", ""}, {"6.12.90+deb13.1", ""}}
	newest(got)
	want := []release{{"6.12.90+deb13.1", ""}, {"6.12.90+deb13", ""}, {"6.12.9", ""}, {"6.1.0-56", ""}, {"6.1.0-9", ""}, {"5.10.0-46", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("the newest first: %v", got)
	}
	if got := series(got); got != "6.12, 6.1, 5.10" {
		t.Errorf("the series are %s", got)
	}
}

// Where there is no emulator, nothing is fetched before that is said.
func TestNoEmulator(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("KPROBE_CACHE", t.TempDir())
	_, err := Boot(Config{Dir: t.TempDir()})
	const want = `exec: "qemu-system-x86_64": executable file not found in $PATH: it comes with the package qemu-system-x86`
	if err == nil || err.Error() != want {
		t.Errorf("without QEMU: %v", err)
	}
}

// With KPROBE_OFFLINE a kernel comes from the cache, or not at all: "make test" has it so.
func TestFetchOffline(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // nothing to fetch with
	t.Setenv("KPROBE_CACHE", t.TempDir())
	t.Setenv("KPROBE_OFFLINE", "1")
	const want = "fetch a kernel for arm64: it is not in the cache, and KPROBE_OFFLINE forbids fetching"
	if _, err := Fetch("arm64", ""); err == nil || err.Error() != want {
		t.Errorf("without a network: %v", err)
	}
}
