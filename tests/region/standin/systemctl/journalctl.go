package systemctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/journal"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// formats are the output modes of journalctl.
var formats = map[string]func(journal.Entry) string{
	"short": func(e journal.Entry) string {
		return fmt.Sprintf("%s %s %s[%d]: %s", e.Time.Format("Jan 02 15:04:05"), hostname(), e.Identifier, e.PID, e.Message)
	},
	"short-iso": func(e journal.Entry) string {
		return fmt.Sprintf("%s %s %s[%d]: %s", e.Time.Format("2006-01-02T15:04:05-0700"), hostname(), e.Identifier, e.PID, e.Message)
	},
	"cat": func(e journal.Entry) string { return e.Message },
	"json": func(e journal.Entry) string {
		line, err := json.Marshal(map[string]string{
			"__REALTIME_TIMESTAMP": fmt.Sprint(e.Time.UnixMicro()), "_SYSTEMD_UNIT": e.Unit, "_PID": fmt.Sprint(e.PID),
			"SYSLOG_IDENTIFIER": e.Identifier, "_BOOT_ID": e.Boot, "MESSAGE": e.Message,
		})
		if err != nil {
			return err.Error()
		}
		return string(line)
	},
}

func hostname() string {
	name, err := os.ReadFile(rootfs.Path(rootfs.Root(), "/etc/hostname"))
	if err != nil {
		return "localhost"
	}
	return string(name)
}

// Journal runs journalctl and returns its exit status.
func Journal(args []string, stdout, stderr io.Writer) int {
	set := pflag.NewFlagSet("journalctl", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	units := set.StringArrayP("unit", "u", nil, "")
	lines := set.IntP("lines", "n", 0, "")
	output := set.StringP("output", "o", "short", "")
	boot := set.BoolP("boot", "b", false, "")
	quiet := set.BoolP("quiet", "q", false, "")
	for _, accepted := range []string{"no-pager", "no-hostname", "all"} {
		set.Bool(accepted, false, "")
	}
	if err := set.Parse(args); err != nil {
		fmt.Fprintln(stderr, "journalctl:", err)
		return 1
	}
	format := formats[*output]
	if format == nil || set.NArg() > 0 {
		fmt.Fprintln(stderr, "journalctl: this stand-in has no such output mode or match:", *output, set.Args())
		return 1
	}
	for i, unit := range *units {
		if filepath.Ext(unit) == "" {
			(*units)[i] = unit + ".service"
		}
	}
	entries, err := journal.Read(rootfs.Path(rootfs.Root(), journal.File), journal.Query{Units: *units, ThisBoot: *boot, Last: *lines})
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if len(entries) == 0 && !*quiet {
		fmt.Fprintln(stdout, "-- No entries --")
	}
	for _, entry := range entries {
		fmt.Fprintln(stdout, format(entry))
	}
	return 0
}
