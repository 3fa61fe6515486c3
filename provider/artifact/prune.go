package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// kept is how many versions' programs stay in the cache: this one and the
	// one used before, so that going back and forth makes nothing anew.
	kept = 2
	// busy is how long others stay after their last use: a command that runs may
	// have yet to upload them.
	busy = time.Hour
)

// use notes that a folder of the cache is used. It fails with fs.ErrNotExist
// when there is none.
func use(folder string) error {
	now := time.Now()
	return os.Chtimes(folder, now, now)
}

// tidy prunes the cache. That it cannot is told, and keeps nobody from working.
func tidy(cache string, progress func(string)) {
	if err := prune(cache); err != nil {
		progress(err.Error())
	}
}

// prune removes what earlier versions of the plugin have left in the cache.
func prune(cache string) error {
	type version struct {
		folder string
		used   time.Time
	}
	var versions []version
	for _, pattern := range []string{"release-*", "source-*"} {
		found, err := filepath.Glob(filepath.Join(cache, pattern))
		if err != nil {
			return fmt.Errorf("look through the cache: %w", err)
		}
		for _, folder := range found {
			info, err := os.Stat(folder)
			if errors.Is(err, fs.ErrNotExist) {
				continue // another process prunes, too
			}
			if err != nil {
				return fmt.Errorf("look through the cache: %w", err)
			}
			if info.IsDir() { // and no lock
				versions = append(versions, version{folder, info.ModTime()})
			}
		}
	}
	slices.SortFunc(versions, func(a, b version) int { return b.used.Compare(a.used) })
	for i, v := range versions {
		if i < kept || time.Since(v.used) < busy {
			continue
		}
		// What is half removed must not be taken for whole.
		doomed := filepath.Join(cache, ".pruned-"+filepath.Base(v.folder))
		err := os.Rename(v.folder, doomed)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another process was first
		}
		if err := errors.Join(err, os.RemoveAll(doomed), os.RemoveAll(lockOf(v.folder))); err != nil {
			return fmt.Errorf("remove the programs of an earlier version: %w", err)
		}
	}
	return nil
}

// lockOf is the lock that is held while a folder is made.
func lockOf(folder string) string { return folder + ".lock" }
