package image

import (
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"kprobe/symbol"
	"kprobe/target"
)

// A file is read once, whatever the number of processes that have it mapped: the children of a
// shell have all the same libraries. Facts that were found out about it (names, calls, where jumps
// may stand) are kept with it. It is known by the file system's data about it, not by its name. One
// that has been written to since is another.
type knownFile struct {
	is   fs.FileInfo
	at   time.Time // of its last change
	size int64
	file *symbol.File
}

// known are the files used last, as long as any image is in use. Files are open, and a program that
// has closed its sessions should have none open.
var known struct {
	mu    sync.Mutex
	files []knownFile // the latest last
	users int
}

func (im *Image) use() {
	known.mu.Lock()
	defer known.mu.Unlock()
	if !im.inUse {
		im.inUse = true
		known.users++
	}
}

// Close says that the image is not used any more.
func (im *Image) Close() {
	known.mu.Lock()
	defer known.mu.Unlock()
	if !im.inUse {
		return
	}
	im.inUse = false
	if known.users--; known.users == 0 {
		known.files = nil
	}
}

// keep is the number of files that are kept when no process has them any more.
const keep = 32

// readFile reads a mapped file, or finds it read already. It takes f over. Only where the target
// sees the file system that we see are files shared: separate debug files are looked for below its
// root.
func readFile(f target.File, path, root string) (*symbol.File, error) {
	open := func() (*symbol.File, error) {
		return symbol.Open(f, &symbol.Options{Path: path, Debug: symbol.DebugFinder(root)})
	}
	stater, ok := f.(interface{ Stat() (fs.FileInfo, error) })
	if !ok || !sameRoot(root) {
		return open()
	}
	is, err := stater.Stat()
	if err != nil {
		return open()
	}
	root = "/" // the process's own way to it ends with the process
	known.mu.Lock()
	defer known.mu.Unlock()
	i := slices.IndexFunc(known.files, func(k knownFile) bool {
		return k.size == is.Size() && k.at.Equal(is.ModTime()) && k.file.Path() == path && os.SameFile(k.is, is)
	})
	if i >= 0 {
		k := known.files[i]
		known.files = append(slices.Delete(known.files, i, i+1), k)
		f.Close()
		return k.file, nil
	}
	file, err := open()
	if err != nil {
		return nil, err
	}
	known.files = append(known.files, knownFile{is, is.ModTime(), is.Size(), file})
	if len(known.files) > keep {
		known.files = slices.Delete(known.files, 0, 1)
	}
	return file, nil
}

// sameRoot tells whether a folder is our own root.
func sameRoot(root string) bool {
	theirs, err1 := os.Stat(root + "/")
	ours, err2 := os.Stat("/")
	return err1 == nil && err2 == nil && os.SameFile(theirs, ours)
}
