// Package dnf is a machine's package manager: it verifies and unpacks real RPM
// files into the machine's folder and keeps a database of what is installed.
//
// Its repository holds the few distribution packages that a node needs, each
// as the files that something looks for. Not modelled: signatures, conflicts,
// versions in dependencies.
package dnf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"
	"github.com/sassoftware/go-rpmutils"
	"github.com/spf13/pflag"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// database is where a machine keeps what is installed.
const database = "/var/lib/rpm/packages.json"

// Package is a package that is, or can be, installed.
type Package struct {
	Name, Version, Release, Arch string
	// Requires names packages; Files are absolute paths on the machine.
	Requires []string `json:",omitempty"`
	Files    []string `json:",omitempty"`

	path        string // of the RPM file, "" for one of the repository
	postInstall string
}

func (p Package) nevra() string {
	return fmt.Sprintf("%s-%s-%s.%s", p.Name, p.Version, p.Release, p.Arch)
}

func (p Package) same(o Package) bool {
	return p.Version == o.Version && p.Release == o.Release
}

// repository is the part of the distribution that nodes ask for.
var repository = map[string]Package{
	"fuse3-libs": {Name: "fuse3-libs", Version: "3.10.4", Release: "1.amzn2023.0.2", Arch: "x86_64", Files: []string{"/usr/lib64/libfuse3.so.3"}},
	"fuse3": {
		Name: "fuse3", Version: "3.10.4", Release: "1.amzn2023.0.2", Arch: "x86_64",
		Requires: []string{"fuse3-libs"}, Files: []string{"/usr/bin/fusermount3"},
	},
}

// base is what every machine has without its being in the database.
var base = []string{"/bin/sh", "/usr/bin/sh", "bash", "glibc", "systemd", "coreutils"}

// Main runs dnf and returns its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	set := pflag.NewFlagSet("dnf", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	yes := set.BoolP("assumeyes", "y", false, "")
	quiet := set.BoolP("quiet", "q", false, "")
	installed := set.Bool("installed", false, "")
	set.String("setopt", "", "")
	set.Bool("nogpgcheck", false, "")
	if err := set.Parse(args); err != nil {
		fmt.Fprintln(stderr, "dnf: error:", err)
		return 1
	}
	if *quiet {
		stdout = io.Discard
	}
	m := &manager{root: rootfs.Root(), stdout: stdout, stderr: stderr}
	verb := set.Arg(0)
	var err error
	switch {
	case verb == "install" && set.NArg() > 1:
		if !*yes {
			fmt.Fprintln(stderr, "Operation aborted.") // nobody is there to answer
			return 1
		}
		err = m.install(set.Args()[1:])
	case verb == "list" && *installed:
		var packages map[string]Package
		if packages, err = load(m.root); err == nil {
			fmt.Fprintln(stdout, "Installed Packages")
			for _, name := range slices.Sorted(maps.Keys(packages)) {
				p := packages[name]
				fmt.Fprintf(stdout, "%-40s %-30s @System\n", p.Name+"."+p.Arch, p.Version+"-"+p.Release)
			}
		}
	default:
		err = fmt.Errorf("this stand-in has only install -y PACKAGE… and list --installed, not %q", args)
	}
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	return 0
}

type manager struct {
	root           string
	stdout, stderr io.Writer
}

// install is one transaction: nothing is changed unless all packages and what
// they require can be.
func (m *manager) install(arguments []string) error {
	path := rootfs.Path(m.root, database)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("open the package database: %w", err)
	}
	lock := flock.New(path + ".lock")
	if locked, err := lock.TryLock(); err != nil {
		return fmt.Errorf("lock the package database: %w", err)
	} else if !locked {
		fmt.Fprintln(m.stderr, "Waiting for the process that holds the package database to finish.")
		if err := lock.Lock(); err != nil {
			return fmt.Errorf("lock the package database: %w", err)
		}
	}
	defer lock.Unlock()
	installed, err := load(m.root)
	if err != nil {
		return err
	}
	wanted := map[string]Package{}
	for _, argument := range arguments {
		p, err := m.find(argument)
		if err != nil {
			return err
		}
		if old, ok := installed[p.Name]; ok && (p.same(old) || p.path == "") {
			fmt.Fprintf(m.stdout, "Package %s is already installed.\n", old.nevra())
			continue
		}
		wanted[p.Name] = p
	}
	if err := resolve(wanted, installed); err != nil {
		return err
	}
	if len(wanted) == 0 {
		fmt.Fprintln(m.stdout, "Dependencies resolved.\nNothing to do.\nComplete!")
		return nil
	}
	fmt.Fprintln(m.stdout, "Dependencies resolved.\nRunning transaction")
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		p := wanted[name]
		old, replaces := installed[name]
		if err := m.unpack(&p); err != nil {
			return fmt.Errorf("unpack %s: %w", p.nevra(), err)
		}
		if replaces {
			m.clean(old, p)
		}
		installed[name] = p
		if err := store(m.root, installed); err != nil {
			return err
		}
		if p.postInstall != "" {
			if err := m.script(p.postInstall); err != nil {
				fmt.Fprintf(m.stderr, "warning: %%post(%s) scriptlet failed, %v\n", p.nevra(), err)
			}
		}
		fmt.Fprintf(m.stdout, "  %s : %s\n", verbFor(p, old, replaces), p.nevra())
	}
	fmt.Fprintln(m.stdout, "Complete!")
	return nil
}

func verbFor(p, old Package, replaces bool) string {
	switch {
	case !replaces:
		return "Installing "
	case rpmutils.Vercmp(p.Version, old.Version) < 0:
		return "Downgrading"
	default:
		return "Upgrading  "
	}
}

// find reads the package that an argument means: a file, or a name in the
// repository.
func (m *manager) find(argument string) (Package, error) {
	if !strings.HasSuffix(argument, ".rpm") {
		p, ok := repository[argument]
		if !ok {
			fmt.Fprintf(m.stdout, "No match for argument: %s\n", argument)
			return p, fmt.Errorf("Unable to find a match: %s", argument) //nolint:staticcheck // dnf's own words
		}
		return p, nil
	}
	path := argument
	if _, err := os.Stat(path); err != nil {
		path = rootfs.Path(m.root, argument)
	}
	return open(path)
}

// open reads and verifies an RPM file.
func open(path string) (Package, error) {
	file, err := os.Open(path)
	if err != nil {
		return Package{}, fmt.Errorf("Can not load RPM file: %w", err) //nolint:staticcheck // dnf's own words
	}
	defer file.Close()
	header, _, err := rpmutils.Verify(file, nil)
	if err != nil {
		return Package{}, fmt.Errorf("Can not load RPM file: %s: %w", path, err) //nolint:staticcheck // dnf's own words
	}
	nevra, err := header.GetNEVRA()
	if err != nil {
		return Package{}, fmt.Errorf("read %s: %w", path, err)
	}
	p := Package{Name: nevra.Name, Version: nevra.Version, Release: nevra.Release, Arch: nevra.Arch, path: path}
	for tag, name := range map[int]string{rpmutils.PREIN: "%pre", rpmutils.PREUN: "%preun", rpmutils.POSTUN: "%postun"} {
		if header.HasTag(tag) {
			return p, fmt.Errorf("%s has a %s scriptlet, which this stand-in does not run", path, name)
		}
	}
	if header.HasTag(rpmutils.REQUIRENAME) {
		requires, err := header.GetStrings(rpmutils.REQUIRENAME)
		if err != nil {
			return p, fmt.Errorf("read the requirements of %s: %w", path, err)
		}
		p.Requires = slices.DeleteFunc(requires, func(name string) bool { return strings.HasPrefix(name, "rpmlib(") })
	}
	if header.HasTag(rpmutils.POSTIN) {
		if p.postInstall, err = header.GetString(rpmutils.POSTIN); err != nil {
			return p, fmt.Errorf("read the scriptlet of %s: %w", path, err)
		}
	}
	return p, nil
}

// resolve adds what the wanted packages require to them.
func resolve(wanted, installed map[string]Package) error {
	for {
		added := false
		for _, p := range wanted {
			for _, requirement := range p.Requires {
				if _, ok := installed[requirement]; ok || slices.Contains(base, requirement) {
					continue
				}
				if _, ok := wanted[requirement]; ok {
					continue
				}
				provider, ok := repository[requirement]
				if !ok {
					return fmt.Errorf("\n Problem: conflicting requests\n  - nothing provides %s needed by %s", requirement, p.nevra())
				}
				wanted[requirement] = provider
				added = true
			}
		}
		if !added {
			return nil
		}
	}
}

// unpack puts a package's files in place, each at once and whole.
func (m *manager) unpack(p *Package) error {
	if p.path == "" {
		for _, file := range p.Files {
			if err := m.write(file, strings.NewReader(""), 0o755); err != nil {
				return err
			}
		}
		return nil
	}
	file, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer file.Close()
	rpm, err := rpmutils.ReadRpm(file)
	if err != nil {
		return err
	}
	payload, err := rpm.PayloadReaderExtended()
	if err != nil {
		return err
	}
	p.Files = nil
	for {
		info, err := payload.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join("/", info.Name())
		switch mode := fs.FileMode(info.Mode() & 0o777); info.Mode() & 0o170000 {
		case 0o040000:
			err = os.MkdirAll(rootfs.Path(m.root, name), mode)
		case 0o100000:
			err = m.write(name, payload, mode)
			p.Files = append(p.Files, name)
		case 0o120000:
			_ = os.Remove(rootfs.Path(m.root, name)) // of an older version
			err = errors.Join(os.MkdirAll(filepath.Dir(rootfs.Path(m.root, name)), 0o755), os.Symlink(info.Linkname(), rootfs.Path(m.root, name)))
			p.Files = append(p.Files, name)
		default:
			err = fmt.Errorf("%s is of a kind that this stand-in does not unpack", name)
		}
		if err != nil {
			return err
		}
	}
}

func (m *manager) write(name string, content io.Reader, mode fs.FileMode) error {
	path := rootfs.Path(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".rpm-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // gone once renamed
	_, err = io.Copy(temporary, content)
	return errors.Join(err, temporary.Chmod(mode), temporary.Close(), os.Rename(temporary.Name(), path))
}

// clean removes the files of an old version that the new one does not have.
func (m *manager) clean(old, p Package) {
	for _, file := range old.Files {
		if !slices.Contains(p.Files, file) {
			_ = os.Remove(rootfs.Path(m.root, file)) // it may be gone already
		}
	}
}

// script runs a scriptlet. Those of packages for process machines use
// ETCFS_ROOT in their paths.
func (m *manager) script(text string) error {
	cmd := exec.Command("/bin/sh", "-c", text, "sh", "1") //nolint:noctx // it ends with the machine
	cmd.Dir = m.root
	cmd.Stdout, cmd.Stderr = m.stdout, m.stderr
	return cmd.Run()
}

// load reads the database of a machine; none is an empty one.
func load(root string) (map[string]Package, error) {
	packages := map[string]Package{}
	data, err := os.ReadFile(rootfs.Path(root, database))
	if errors.Is(err, os.ErrNotExist) {
		return packages, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the package database: %w", err)
	}
	if err := json.Unmarshal(data, &packages); err != nil {
		return nil, fmt.Errorf("read the package database: %w", err)
	}
	return packages, nil
}

func store(root string, packages map[string]Package) error {
	data, err := json.MarshalIndent(packages, "", "  ")
	if err != nil {
		return fmt.Errorf("write the package database: %w", err)
	}
	path := rootfs.Path(root, database)
	if err := errors.Join(os.WriteFile(path+".new", data, 0o644), os.Rename(path+".new", path)); err != nil {
		return fmt.Errorf("write the package database: %w", err)
	}
	return nil
}

// RPM runs rpm, which only answers queries here, and returns its exit status.
func RPM(args []string, stdout, stderr io.Writer) int {
	set := pflag.NewFlagSet("rpm", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	query := set.BoolP("query", "q", false, "")
	all := set.BoolP("all", "a", false, "")
	format := set.String("qf", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\n", "")
	set.StringVar(format, "queryformat", *format, "")
	if err := set.Parse(args); err != nil || !*query {
		fmt.Fprintln(stderr, "rpm: this stand-in only answers -q [--qf FORMAT] NAME… and -qa:", err)
		return 1
	}
	packages, err := load(rootfs.Root())
	if err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
	names := set.Args()
	if *all {
		names = slices.Sorted(maps.Keys(packages))
	}
	status := 0
	for _, name := range names {
		p, ok := packages[name]
		if !ok {
			fmt.Fprintf(stdout, "package %s is not installed\n", name)
			status++
			continue
		}
		text := strings.NewReplacer("%{NAME}", p.Name, "%{VERSION}", p.Version, "%{RELEASE}", p.Release, "%{ARCH}", p.Arch, `\n`, "\n").Replace(*format)
		fmt.Fprint(stdout, text)
	}
	return status
}
