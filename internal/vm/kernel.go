package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
}

var machines = map[string]machine{
	"amd64": {"amd64", "linux-image-cloud-amd64",
		[]string{"qemu-system-x86_64", "-cpu", "max", "-machine", "q35,memory-backend=ram"}, "qemu-system-x86",
		"ttyS0", []string{"-serial", "chardev:con"}},
	"arm64": {"arm64", "linux-image-cloud-arm64",
		[]string{"qemu-system-aarch64", "-cpu", "cortex-a72", "-machine", "virt,memory-backend=ram"}, "qemu-system-arm",
		"ttyAMA0", []string{"-serial", "chardev:con"}},
	"s390x": {"s390x", "linux-image-s390x",
		[]string{"qemu-system-s390x", "-cpu", "max", "-machine", "s390-ccw-virtio,memory-backend=ram"}, "qemu-system-misc",
		"ttysclp0", []string{"-device", "sclpconsole,chardev=con"}},
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

// Fetch provides Debian's newest kernel for a machine ("" is amd64): from the
// cache, or by apt-get from the mirrors that this host uses. Nothing is installed, and
// apt's state on the host stays as it is, so no privilege is needed, and the
// machine may be a foreign one.
func Fetch(name string) (*Kernel, error) {
	if name == "" {
		name = "amd64"
	}
	m, ok := machines[name]
	if !ok {
		return nil, fmt.Errorf("no kernel is known for %s", name)
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
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := fetch(dir, m); err != nil {
			return nil, fmt.Errorf("fetch a kernel for %s: %w", name, err)
		}
	}
	images, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if len(images) != 1 {
		return nil, fmt.Errorf("%s holds %d kernels, not one: remove it, and it is fetched again", dir, len(images))
	}
	return &Kernel{name, strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-"), dir}, nil
}

// fetch unpacks what a guest needs into dir, which is complete if it is there.
func fetch(dir string, m machine) error {
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	apt := filepath.Join(part, "apt")
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return err
		}
	}
	status := filepath.Join(apt, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return err
	}
	own := []string{
		"-o", "APT::Architecture=" + m.debian, "-o", "APT::Architectures::=" + m.debian,
		"-o", "Dir::State=" + filepath.Join(apt, "state"), "-o", "Dir::State::status=" + status,
		"-o", "Dir::Cache=" + filepath.Join(apt, "cache"), "-o", "APT::Sandbox::User=", "-qq",
	}
	if _, err := run(apt, "apt-get", append(own, "update")...); err != nil {
		return err
	}
	// The package that users install is empty and names the kernel's own.
	out, err := run(apt, "apt-cache", append(own, "depends", m.kernel)...)
	if err != nil {
		return err
	}
	_, rest, ok := strings.Cut(out, "Depends: linux-image")
	if !ok {
		return fmt.Errorf("%s names no kernel: is this host a Debian?", m.kernel)
	}
	kernel := "linux-image" + strings.Fields(rest)[0]
	if _, err := run(apt, "apt-get", append(own, "download", kernel, "busybox-static")...); err != nil {
		return err
	}
	packages, _ := filepath.Glob(filepath.Join(apt, "*.deb"))
	for _, deb := range packages {
		if _, err := run(apt, "dpkg-deb", "-x", deb, part); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(apt); err != nil {
		return err
	}
	return os.Rename(part, dir)
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
