package atomicfile

import (
	"fmt"
	"io"
	"os"
)

// ReadRegular returns the bytes of the regular file name, at most max of them:
// more is ErrTooLarge. It never blocks: what is not a regular file before or
// after the opening is ErrNotRegular, and a FIFO or device is not even opened.
// A link to a regular file is followed. fs.ErrNotExist when there is none.
func ReadRegular(name string, max int64) ([]byte, error) {
	f, err := OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > max {
		return nil, fmt.Errorf("read %s: %w: %d bytes, %d allowed", name, ErrTooLarge, fi.Size(), max)
	}
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > max {
		return nil, fmt.Errorf("read %s: %w: more than the %d bytes allowed", name, ErrTooLarge, max)
	}
	return data, nil
}

// OpenRegular opens the regular file name for reading with the rules of
// ReadRegular. On Windows the file may be renamed and removed while it is open.
func OpenRegular(name string) (*os.File, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: %w", name, ErrNotRegular)
	}
	var f *os.File
	err = retry(func() error {
		f, err = openRead(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	// It may have been replaced since: O_NONBLOCK kept us from waiting, now look.
	if fi, err = f.Stat(); err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w", name, ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
