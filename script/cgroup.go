package script

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// groupRoot is where control groups of the second version are mounted.
const groupRoot = "/sys/fs/cgroup"

// cgroupOf is the id of a process's control group, 0 where there is none: its folder's inode.
func cgroupOf(pid string) uint64 {
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			for _, root := range []string{groupRoot, groupRoot + "/unified"} {
				var st syscall.Stat_t
				if syscall.Stat(filepath.Join(root, path), &st) == nil {
					return st.Ino
				}
			}
		}
	}
	return 0
}

// cgroupPath is the path of the group of that id.
func cgroupPath(id uint64) string {
	found, there := "", false
	_ = filepath.WalkDir(groupRoot, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // what cannot be read is no answer
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Ino == id {
				found, there = strings.TrimPrefix(path, groupRoot), true
				return fs.SkipAll
			}
		}
		return nil
	})
	switch {
	case there && found == "":
		return "unified:/" // of all others
	case there:
		return "unified:" + found
	case id == 0:
		return ""
	}
	return fmt.Sprintf("%d", id)
}
