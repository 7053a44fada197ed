package vm

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
)

// An initramfs is a cpio archive in the "newc" form, which the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst describes: for each
// file a header of hexadecimal digits, its name, and its bytes, each padded to four.

// file is one member of an archive.
type file struct {
	mode fs.FileMode // fs.ModeDir, and the permissions
	data []byte
}

// tree is a file system by path, without a slash at the front.
type tree map[string]file

// add puts a file there, and the folders that lead to it.
func (t tree) add(name string, mode fs.FileMode, data []byte) {
	t[name] = file{mode, data}
	t.folder(path.Dir(name))
}

func (t tree) folder(name string) {
	if name == "." {
		return
	}
	t[name] = file{mode: fs.ModeDir | 0o755}
	t.folder(path.Dir(name))
}

// writeTo writes the archive. Folders come before what is in them.
func (t tree) writeTo(w io.Writer) error {
	var names []string
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range append(names, "TRAILER!!!") {
		f := t[name]
		if err := writeMember(w, i+1, name, f); err != nil {
			return err
		}
	}
	return nil
}

const (
	unixDir  = 0o040000
	unixFile = 0o100000
)

func writeMember(w io.Writer, ino int, name string, f file) error {
	mode := unixFile | f.mode.Perm()
	if f.mode.IsDir() {
		mode = unixDir | f.mode.Perm()
	}
	// magic, then 13 fields: ino mode uid gid nlink mtime filesize devmajor
	// devminor rdevmajor rdevminor namesize check
	head := "070701"
	for _, v := range []int{ino, int(mode), 0, 0, 1, 0, len(f.data), 0, 0, 0, 0, len(name) + 1, 0} {
		head += fmt.Sprintf("%08x", v)
	}
	head += name + "\x00"
	for _, part := range [][]byte{[]byte(head), f.data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
		if _, err := w.Write(make([]byte, -len(part)&3)); err != nil {
			return err
		}
	}
	return nil
}
