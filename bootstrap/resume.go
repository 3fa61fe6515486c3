package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// resume has the bootstrap run at each later boot, with the settings of this
// one. It comes first: a machine that reboots, or loses its power, in the
// middle of its first boot would otherwise never be heard of again, for user
// data runs once. Its half-joined member would keep all others from joining.
func (b *Bootstrap) resume() phase.Phase {
	return phase.Phase{
		Name:    PhaseResume,
		Timeout: time.Minute,
		Done: func(ctx context.Context) (bool, error) {
			environment, err := b.Settings.Encode()
			if err != nil {
				return false, err
			}
			kept, err := os.ReadFile(b.path(settings.EnvironmentFile))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Errorf("read the node's settings: %w", err)
			}
			if string(kept) != environmentFile(environment) {
				return false, nil
			}
			if installed, err := b.Services.Installed(bootstrapService); err != nil || !installed {
				return false, err
			}
			return b.Services.Enabled(ctx, UnitBootstrap)
		},
		Run: func(ctx context.Context) error {
			environment, err := b.Settings.Encode()
			if err != nil {
				return err
			}
			if err := b.writeFile(settings.EnvironmentFile, environmentFile(environment), 0o644); err != nil {
				return err
			}
			if err := b.Services.Install(ctx, bootstrapService); err != nil {
				return err
			}
			return b.Services.Enable(ctx, UnitBootstrap)
		},
	}
}

// UnitBootstrap runs the bootstrap at later boots.
const UnitBootstrap = "etcfs-bootstrap.service"

// bootstrapService runs the bootstrap at each boot after the first, which user
// data makes. It is retried, and not given up: the node may be one of many that
// lost power together, and its etcd is needed for the others' to serve.
var bootstrapService = systemd.Unit(UnitBootstrap, generated+`[Unit]
Description=EtcFS node bootstrap
Documentation=https://github.com/etcfs/pulumi-etcfs
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile=`+settings.EnvironmentFile+`
ExecStart=`+settings.BootstrapBinary+` run
Restart=on-failure
RestartSec=15

[Install]
WantedBy=multi-user.target
`)
