package vm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is about to be fetched is told before apt-get runs, and nothing of what is there already.
func TestFetchTells(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("KPROBE_CACHE", cache)
	t.Setenv("KPROBE_OFFLINE", "")
	t.Setenv("PATH", "") // there is no apt-get
	var told []string
	c := Config{Machine: "arm64", Tell: func(what string) { told = append(told, what) }}
	if _, err := c.Fetch(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if len(told) != 1 || !strings.Contains(told[0], "a kernel for arm64 is fetched by apt-get") || !strings.Contains(told[0], cache) {
		t.Errorf("%q", told)
	}
	told = nil
	boot := filepath.Join(cache, "arm64", "boot")
	if err := os.MkdirAll(boot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(boot, "vmlinuz-6.1.0-1-arm64"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if k, err := c.Fetch(); err != nil || k.Release != "6.1.0-1-arm64" || len(told) != 0 {
		t.Errorf("%v, %v, told %q", k, err, told)
	}
}
