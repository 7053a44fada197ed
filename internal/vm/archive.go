package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// archive is Debian's, as apt-get sees it with an index of our own: nothing of the host's apt
// changes, so no privilege is needed, and the machine may be a foreign one.
type archive struct {
	dir     string // where apt keeps the index
	debian  string // the machine's name in Debian
	sources string // a sources.list; "" for the host's own
}

// suites are the parts of Debian that have kernels of their own. A mirror need not have each.
var suites = []struct{ name, label string }{
	{"bullseye", "Debian"}, {"bullseye-security", "Debian-Security"},
	{"bookworm", "Debian"}, {"bookworm-security", "Debian-Security"}, {"bookworm-backports", "Debian"},
	{"trixie", "Debian"}, {"trixie-security", "Debian-Security"}, {"trixie-backports", "Debian"},
	{"forky", "Debian"}, {"forky-security", "Debian-Security"}, {"forky-backports", "Debian"},
	{"sid", "Debian"}, {"experimental", "Debian"},
}

// keyring holds the keys of all suites, where a host's apt does not trust them anyway.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// openArchive reads the index of the suites that this host uses, into a folder that is kept.
func openArchive(dir, debian string) (*archive, error) {
	a := &archive{dir: dir, debian: debian}
	return a, a.update()
}

// of is the archive for a machine with the suites that are named, or every one that the mirrors have, which are those
// that this host uses. Its index is in a folder of the cache.
func (a *archive) of(cache, index, debian string, names ...string) (*archive, error) {
	out, err := a.apt("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)")
	if err != nil {
		return nil, err
	}
	mirrors := make(map[string]string)
	for line := range strings.Lines(out) {
		if label, uri, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			mirrors[label] = uri
		}
	}
	signed := ""
	if _, err := os.Stat(keyring); err == nil {
		signed = "[signed-by=" + keyring + "] "
	}
	var list strings.Builder
	for _, s := range suites {
		if uri := mirrors[s.label]; uri != "" && (len(names) == 0 || slices.Contains(names, s.name)) {
			fmt.Fprintf(&list, "deb %s%s %s main\n", signed, uri, s.name)
		}
	}
	b := &archive{dir: filepath.Join(cache, index), debian: debian, sources: filepath.Join(cache, index+".list")}
	if err := os.WriteFile(b.sources, []byte(list.String()), 0o644); err != nil {
		return nil, err
	}
	return b, b.update()
}

// update brings the index up to date. A mirror may lack a suite, or may just be changing one: what
// else there is will do, and what is wanted and not there is noticed by who looks for it.
func (a *archive) update() error {
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644); err != nil {
		return err
	}
	_, err := a.apt("apt-get", "update")
	lists, _ := filepath.Glob(filepath.Join(a.dir, "state/lists/*_Packages*"))
	if len(lists) > 0 {
		return nil
	}
	if err == nil {
		err = errors.New("apt-get knows of no packages")
	}
	return fmt.Errorf("%w: is this host a Debian, and its mirror reachable?", err)
}

// apt runs a program of apt's on the index.
func (a *archive) apt(name string, args ...string) (string, error) {
	return a.aptIn(a.dir, name, args...)
}

// aptIn runs it in a folder, where it puts what it downloads.
func (a *archive) aptIn(dir, name string, args ...string) (string, error) {
	options := []string{
		"-o", "APT::Architecture=" + a.debian, "-o", "APT::Architectures::=" + a.debian,
		"-o", "Dir::State=" + filepath.Join(a.dir, "state"), "-o", "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"), "-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3", "-qq",
	}
	if a.sources != "" {
		options = append(options, "-o", "Dir::Etc::sourcelist="+a.sources, "-o", "Dir::Etc::sourceparts=/dev/null")
	}
	return run(dir, name, append(options, args...)...)
}

// release is the name of a kernel: what uname -r says.
type release struct{ version, flavour string }

func (r release) String() string { return r.version + "-" + r.flavour }

// A version's parts begin with digits, a flavour's do not: 6.1.0-0.deb11.48-cloud-amd64.
var releases = regexp.MustCompile(`^([0-9][^-]*(?:-[0-9][^-]*)*)(?:-([a-z].*))?$`)

// parseRelease reads a release, or the beginning of one, whose flavour may be left out.
func parseRelease(s string) (r release, err error) {
	m := releases.FindStringSubmatch(s)
	if m == nil {
		return r, fmt.Errorf("%q is no kernel's version, such as 6.12 or 6.12.43+deb13-cloud-amd64", s)
	}
	return release{m[1], m[2]}, nil
}

// is tells whether r is what was asked for: a whole version, or its first numbers.
func (r release) is(asked release) bool {
	rest, ok := strings.CutPrefix(r.version, asked.version)
	return ok && r.flavour == asked.flavour && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

// newest sorts releases: the newest first.
func newest(rs []release) {
	numbers := regexp.MustCompile(`[0-9]+`)
	slices.SortFunc(rs, func(a, b release) int {
		n, m := numbers.FindAllString(a.version, -1), numbers.FindAllString(b.version, -1)
		return slices.CompareFunc(m, n, func(x, y string) int {
			i, _ := strconv.Atoi(x)
			j, _ := strconv.Atoi(y)
			return i - j
		})
	})
}

// debianKernel is one that the archive has.
type debianKernel struct {
	release
	image   string // the package
	modules string // the package with the modules, where it is another one: since 6.19
}

// kernels are all that the archive has of what was asked for, the newest first.
func (a *archive) kernels(asked release) ([]debianKernel, error) {
	out, err := a.apt("apt-cache", "search", "--names-only", "^linux-(image|binary)-[0-9]")
	if err != nil {
		return nil, err
	}
	split, known := make(map[release]bool), make(map[release]bool)
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		kind, rest, _ := strings.Cut(strings.TrimPrefix(name, "linux-"), "-")
		if r, err := parseRelease(rest); err == nil && r.flavour != "" {
			known[r] = true
			split[r] = split[r] || kind == "binary"
		}
	}
	var fit, others []release
	for r := range known {
		if r.is(asked) {
			fit = append(fit, r)
		} else if r.flavour == asked.flavour {
			others = append(others, r)
		}
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("%w as %s for %s in the archive; of this flavour it has %s", errNoSuchKernel, asked, a.debian, series(others))
	}
	newest(fit)
	var ks []debianKernel
	for _, r := range fit {
		k := debianKernel{release: r, image: "linux-image-" + r.String()}
		if split[r] {
			k.image, k.modules = "linux-binary-"+r.String(), "linux-modules-"+r.String()
		}
		ks = append(ks, k)
	}
	return ks, nil
}

// usual is the newest of a machine's usual flavour. The package that users install is
// empty and names the kernel's own.
func (a *archive) usual(m machine) (k debianKernel, err error) {
	out, err := a.apt("apt-cache", "depends", m.kernel)
	if err != nil {
		return k, err
	}
	_, rest, ok := strings.Cut(out, "Depends: linux-image-")
	if !ok {
		return k, fmt.Errorf("%s names no kernel: is this host a Debian?", m.kernel)
	}
	r, err := parseRelease(strings.Fields(rest)[0])
	if err != nil {
		return k, err
	}
	ks, err := a.kernels(r)
	if err != nil {
		return k, err
	}
	return ks[0], nil
}

// series names the first two numbers of each.
func series(rs []release) string {
	newest(rs)
	var names []string
	for _, r := range rs {
		parts := strings.SplitN(r.version, ".", 3)
		if name := strings.Join(parts[:min(2, len(parts))], "."); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// provide unpacks a kernel, with what its guest runs, into dir, which is complete if it is there. Debian
// removes the modules of older kernels before their images: such a kernel has none.
func (a *archive) provide(dir string, k debianKernel) (err error) {
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(part)
		}
	}()
	debs := filepath.Join(part, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	if k.modules != "" {
		if _, err := a.aptIn(debs, "apt-get", "download", k.modules); err != nil {
			fmt.Fprintf(os.Stderr, "kernel %s comes without modules: %v\n", k, err)
		}
	}
	if _, err := a.aptIn(debs, "apt-get", "download", "busybox-static", k.image); err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(debs, "*.deb"))
	for _, deb := range files {
		if _, err := run(debs, "dpkg-deb", "-x", deb, part); err != nil {
			return err
		}
	}
	if err := errors.Join(os.RemoveAll(debs), oldPaths(part, k.String())); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// oldPaths gives files the paths that they had before /usr was merged (bin, lib), and before
// the image became one of the modules' folder (since 7.3). ppc64el's is not compressed, and called by another name.
func oldPaths(root, release string) error {
	if err := os.MkdirAll(filepath.Join(root, "boot"), 0o755); err != nil {
		return err
	}
	image := "../usr/lib/modules/" + release + "/vmlinuz"
	if plain := "vmlinux-" + release; exists(filepath.Join(root, "boot", plain)) {
		image = plain
	}
	for path, now := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "boot/vmlinuz-" + release: image} {
		if exists(filepath.Join(root, path)) {
			continue
		}
		if err := os.Symlink(now, filepath.Join(root, path)); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
