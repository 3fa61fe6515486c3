package host

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// recipe is all that decides what is on the machines' disk: the script and the
// files that it copies.
//
//go:embed all:image
var recipe embed.FS

// lockPause is how often a build of somebody else is looked at.
const lockPause = time.Second

// Image returns the folder of the machines' disk, built first unless the cache
// has it. The cache may be shared by programs that run at once. Progress is
// told line by line.
func Image(ctx context.Context, cache string, progress func(line string)) (string, error) {
	name, err := recipeHash()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the image cache: %w", err)
	}
	folder := filepath.Join(cache, name)
	lock := flock.New(folder + ".lock")
	if free, err := lock.TryLock(); err != nil {
		return "", fmt.Errorf("lock the image cache: %w", err)
	} else if !free {
		progress("image: wait for another build")
		if _, err := lock.TryLockContext(ctx, lockPause); err != nil {
			return "", fmt.Errorf("wait for another build of the image: %w", err)
		}
	}
	defer lock.Close()
	now := time.Now()
	if os.Chtimes(folder, now, now) == nil { // it is there, and used
		return folder, nil
	}
	if err := build(ctx, folder, progress); err != nil {
		return "", fmt.Errorf("build the image: %w", err)
	}
	if err := prune(cache, folder); err != nil {
		return "", fmt.Errorf("remove earlier images: %w", err)
	}
	return folder, nil
}

// busy is how long an image stays after its last use: longer than any machine
// runs on it.
const busy = time.Hour

// prune removes images of other recipes, half a gigabyte each.
func prune(cache, current string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		folder := filepath.Join(cache, entry.Name())
		info, err := entry.Info()
		if err != nil || !entry.IsDir() || folder == current || time.Since(info.ModTime()) < busy {
			continue // one that has just gone, too
		}
		if err := errors.Join(os.RemoveAll(folder), os.RemoveAll(folder+".lock")); err != nil {
			return err
		}
	}
	return nil
}

// recipeHash names an image by what it is made of.
func recipeHash() (string, error) {
	hash := sha256.New()
	err := fs.WalkDir(recipe, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := recipe.ReadFile(path)
		fmt.Fprintf(hash, "%s %d\n%s", path, len(content), content)
		return err
	})
	return fmt.Sprintf("%x", hash.Sum(nil)[:8]), err
}

// build builds an image under another name, and gives it its own at the end.
func build(ctx context.Context, folder string, progress func(string)) (err error) {
	partial, source := folder+".partial", folder+".recipe"
	for _, left := range []string{partial, source} { // by a build that was interrupted
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	files, err := fs.Sub(recipe, "image")
	if err != nil {
		return err
	}
	if err := os.CopyFS(source, files); err != nil {
		return err
	}
	// Namespaces of its own: an interrupted build leaves no mount and no
	// process, and the partial image can be removed safely.
	command := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", filepath.Join(source, "build"), partial)
	// The kernel ends it with the thread that has started it: nothing goes on
	// building when this program was killed and has lost its lock.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		progress(lines.Text())
	}
	if err := errors.Join(lines.Err(), command.Wait()); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return errors.Join(err, os.RemoveAll(partial))
	}
	return os.Rename(partial, folder)
}
