package script

import (
	"os"
	"path/filepath"
	"strings"
)

// largestHeader limits the bytes of a header.
const largestHeader = 4 << 20

// included are the headers of the options as #include has them: files in quotes, others by their names.
func (o *Options) included() (all []string) {
	for _, name := range o.Include {
		if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
			all = append(all, `"`+name+`"`)
		} else {
			all = append(all, "<"+strings.Trim(name, `<>"`)+">")
		}
	}
	return all
}

// header finds a header: in quotes from the folder of the file that includes it, then of kprobe's own; in the folders of the options;
// and where a system has them.
func (o *Options) header(from, name string, quoted bool) (path, text string, ok bool) {
	folders := append([]string{}, o.IncludeFolders...)
	folders = append(folders, "/usr/local/include", "/usr/include")
	machines, _ := filepath.Glob("/usr/include/*-linux-gnu")
	folders = append(folders, machines...)
	if quoted {
		folders = append([]string{filepath.Dir(from), "."}, folders...)
	}
	for _, folder := range folders {
		path = filepath.Join(folder, name)
		if filepath.IsAbs(name) {
			path = name
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() || st.Size() > largestHeader {
			continue
		}
		b, err := os.ReadFile(path)
		return path, string(b), err == nil
	}
	return "", "", false
}
