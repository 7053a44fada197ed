package vm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is one kind of guest that this package can boot.
type machine struct {
	debian  string   // the architecture's name in Debian
	kernel  string   // the package that names the newest kernel
	qemu    []string // the emulator, with what the machine needs
	from    string   // the package that brings it
	console string   // the kernel's name for the serial line
	line    []string // what connects that line to the chardev "con"
	suite   string   // of Debian that the usual kernel is taken from; "": those that this host uses
}

var machines = map[string]machine{
	"amd64": {"amd64", "linux-image-cloud-amd64",
		[]string{"qemu-system-x86_64", "-cpu", "max", "-machine", "q35,memory-backend=ram"}, "qemu-system-x86",
		"ttyS0", []string{"-serial", "chardev:con"}, ""},
	"arm64": {"arm64", "linux-image-cloud-arm64",
		[]string{"qemu-system-aarch64", "-cpu", "max,pauth-impdef=on,lpa2=off", "-machine", "virt,memory-backend=ram"}, "qemu-system-arm",
		"ttyAMA0", []string{"-serial", "chardev:con"}, ""},
	// Bookworm has no riscv64, and trixie's kernel comes with all of its modules: ten times as much.
	"riscv64": {"riscv64", "linux-image-riscv64",
		[]string{"qemu-system-riscv64", "-cpu", "rv64", "-machine", "virt,memory-backend=ram"}, "qemu-system-misc",
		"ttyS0", []string{"-serial", "chardev:con"}, "forky"},
	"s390x": {"s390x", "linux-image-s390x",
		[]string{"qemu-system-s390x", "-cpu", "max", "-machine", "s390-ccw-virtio,memory-backend=ram"}, "qemu-system-misc",
		"ttysclp0", []string{"-device", "sclpconsole,chardev=con"}, ""},
	"ppc64le": {"ppc64el", "linux-image-powerpc64le",
		[]string{"qemu-system-ppc64", "-cpu", "power10", "-machine", "pseries,memory-backend=ram"}, "qemu-system-ppc",
		"hvc0", []string{"-device", "spapr-vty,chardev=con"}, ""},
}

// Kernel is an unpacked kernel, with the programs that its guest runs.
type Kernel struct {
	Machine string // in Go's spelling
	Release string // what uname -r says, such as 6.1.0-56-cloud-amd64
	Dir     string // the root of the unpacked packages: boot/, lib/modules/, ...
}

// Image is the path of the bootable kernel.
func (k *Kernel) Image() string { return filepath.Join(k.Dir, "boot", "vmlinuz-"+k.Release) }

func (k *Kernel) busybox() string { return filepath.Join(k.Dir, "bin", "busybox") }

// CacheDir is where kernels are kept: the folder that the environment variable
// KPROBE_CACHE names, else kprobe in the user's cache folder.
func CacheDir() (string, error) {
	dir := os.Getenv("KPROBE_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no folder to keep kernels in: %w (KPROBE_CACHE names one)", err)
		}
		dir = filepath.Join(user, "kprobe")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// Fetch provides a kernel of Debian's for a machine ("" is amd64): from the cache, or by apt-get from
// the mirrors that this host uses. Nothing is installed. The version "" is the newest of
// the host's own suites. Any other is looked for in all suites: the beginning of a release (6.12), or a whole one, with the flavour
// (6.12-rt-amd64) where it is not the usual one. Of several that fit, one that is in the cache is taken, else the newest.
//
// Errors: the machine or the version is not known; there is nothing to fetch it with, or from; it is not in the cache, and
// KPROBE_OFFLINE is set, which forbids fetching.
func Fetch(name, version string) (*Kernel, error) {
	return Config{Machine: name, Kernel: version}.Fetch()
}

// Fetch provides the kernel of a guest that is to be. Config.Tell is told before apt-get is run.
func (c Config) Fetch() (*Kernel, error) {
	name, version := cmp.Or(c.Machine, "amd64"), c.Kernel
	m, ok := machines[name]
	if !ok {
		return nil, fmt.Errorf("no kernel is known for %s", name)
	}
	var asked release
	if version != "" {
		var err error
		if asked, err = parseRelease(version); err != nil {
			return nil, err
		}
		if asked.flavour == "" {
			asked.flavour = strings.TrimPrefix(m.kernel, "linux-image-")
		}
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	unlock, err := Lock(filepath.Join(cache, name+".lock")) // of several who fetch, one does
	if err != nil {
		return nil, err
	}
	defer unlock()
	k, err := cached(cache, name, asked)
	if k == nil && err == nil && os.Getenv("KPROBE_OFFLINE") != "" {
		err = errors.New("it is not in the cache, and KPROBE_OFFLINE forbids fetching")
	} else if k == nil && err == nil {
		if c.Tell != nil {
			c.Tell(fmt.Sprintf("a kernel for %s is fetched by apt-get, with its index of packages, into %s: that may take minutes", name, cache))
		}
		if err = fetchInsistently(cache, name, m, asked); err == nil {
			k, err = cached(cache, name, asked)
		}
		if k == nil && err == nil {
			err = errors.New("what was fetched holds no such kernel")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("fetch a kernel for %s: %w", name, err)
	}
	return k, nil
}

// cached finds a kernel in the cache; nil where there is none.
func cached(cache, name string, asked release) (*Kernel, error) {
	dirs := []string{filepath.Join(cache, name)}
	if asked.version != "" {
		others, _ := filepath.Glob(filepath.Join(cache, name+"-[0-9]*"))
		dirs = append(dirs, others...)
	}
	found := make(map[release]string)
	for _, dir := range dirs {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) || strings.HasSuffix(dir, ".part") {
			continue
		}
		images, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
		if len(images) != 1 {
			return nil, fmt.Errorf("%s holds %d kernels, not one: remove it, and it is fetched again", dir, len(images))
		}
		r, err := parseRelease(strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-"))
		if err == nil && (asked.version == "" || r.is(asked)) {
			found[r] = dir
		}
	}
	rs := slices.Collect(maps.Keys(found))
	if len(rs) == 0 {
		return nil, nil
	}
	newest(rs)
	return &Kernel{name, rs[0].String(), found[rs[0]]}, nil
}

// fetchInsistently fetches anew, by a new index, what fails: a mirror that is about to change may name what it has no
// longer. What no try can mend is an error at once.
func fetchInsistently(cache, name string, m machine, asked release) (err error) {
	for range 3 {
		err = fetch(cache, name, m, asked)
		if err == nil || errors.Is(err, exec.ErrNotFound) || errors.Is(err, errNoSuchKernel) {
			break
		}
	}
	return err
}

// errNoSuchKernel: the archive's index has none.
var errNoSuchKernel = errors.New("there is no such kernel")

// fetch unpacks what a guest needs into a folder of the cache, which is complete if it is there.
func fetch(cache, name string, m machine, asked release) error {
	// Where this host's suites do not have the machine, they tell of the mirrors nevertheless.
	debian, index := m.debian, "apt-"+name
	if m.suite != "" {
		debian, index = machines["amd64"].debian, "apt-amd64"
	}
	a, err := openArchive(filepath.Join(cache, index), debian)
	if err != nil {
		return err
	}
	if asked.version == "" {
		if m.suite != "" {
			if a, err = a.of(cache, "apt-"+name, m.debian, m.suite); err != nil {
				return err
			}
		}
		k, err := a.usual(m)
		if err != nil {
			return err
		}
		return a.provide(filepath.Join(cache, name), k)
	}
	if a, err = a.of(cache, "apt-"+name+"-all", m.debian); err != nil {
		return err
	}
	ks, err := a.kernels(asked)
	if err != nil {
		return err
	}
	for _, k := range ks { // an index may name what its mirror has not any more, or not yet
		if err = a.provide(filepath.Join(cache, name+"-"+k.String()), k); err == nil {
			break
		}
	}
	return err
}

// run runs a program, and answers what it printed.
func run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.Join(strings.Fields(stderr.String()), " "))
	}
	return string(out), nil
}

// Lock waits until nobody else holds the lock that a file stands for. It ends
// with this process, at the latest.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { f.Close() }, nil
}
