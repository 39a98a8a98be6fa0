package atomicfile

import (
	"io/fs"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

func lookByName(name string, follow bool) (Info, error) {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return Info{}, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	flags := uint32(windows.FILE_FLAG_BACKUP_SEMANTICS) // or it opens no directory
	if !follow {
		flags |= windows.FILE_FLAG_OPEN_REPARSE_POINT
	}
	var f *os.File
	err = retry(func() error {
		h, err := windows.CreateFile(p, windows.FILE_READ_ATTRIBUTES,
			windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil,
			windows.OPEN_EXISTING, flags, 0)
		if err != nil {
			return &os.PathError{Op: "stat", Path: name, Err: err}
		}
		f = os.NewFile(uintptr(h), name)
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	return lookAtFile(f)
}

func lookAtFile(f *os.File) (Info, error) {
	h := windows.Handle(f.Fd())
	if kind, err := windows.GetFileType(h); err == nil && kind != windows.FILE_TYPE_DISK {
		return Info{Mode: fs.ModeDevice}, nil
	}
	var d windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &d); err != nil {
		return Info{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	info := Info{
		Size:    int64(d.FileSizeHigh)<<32 | int64(d.FileSizeLow),
		ModTime: time.Unix(0, d.LastWriteTime.Nanoseconds()),
		Dev:     uint64(d.VolumeSerialNumber),
		Ino:     uint64(d.FileIndexHigh)<<32 | uint64(d.FileIndexLow),
		Mode:    0o666,
	}
	info.ChangeTime = info.ModTime
	var basic struct {
		Created, Accessed, Written, Changed int64
		Attributes                          uint32
		_                                   uint32
	}
	err := windows.GetFileInformationByHandleEx(h, windows.FileBasicInfo, (*byte)(unsafe.Pointer(&basic)), uint32(unsafe.Sizeof(basic)))
	if err == nil && basic.Changed != 0 {
		changed := windows.Filetime{LowDateTime: uint32(basic.Changed), HighDateTime: uint32(basic.Changed >> 32)}
		info.ChangeTime = time.Unix(0, changed.Nanoseconds())
	}
	switch {
	case d.FileAttributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0:
		// A link or junction. Other reparse points (a cloud drive's placeholders)
		// are files to whoever opens them.
		fi, err := os.Lstat(f.Name())
		if err != nil {
			return Info{}, err
		}
		info.Mode = fi.Mode()
	case d.FileAttributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0:
		info.Mode |= fs.ModeDir
	}
	return info, nil
}
