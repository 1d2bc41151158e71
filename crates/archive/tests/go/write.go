// Writes an archive to standard output: write FORMAT. The archives beside this file are what it wrote, by
// `go run write.go FORMAT | gzip -9n > FORMAT.tar.gz`.
package main

import (
	"archive/tar"
	"bytes"
	"os"
	"strings"
	"time"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	formats := map[string]tar.Format{"ustar": tar.FormatUSTAR, "pax": tar.FormatPAX, "gnu": tar.FormatGNU}
	format := formats[os.Args[1]]
	to := tar.NewWriter(os.Stdout)
	if format == tar.FormatPAX {
		records := map[string]string{"SAPWOOD.all": "of the archive"}
		must(to.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "global", PAXRecords: records}))
	}
	put := func(header tar.Header, content []byte) {
		header.Format, header.Mode, header.Size = format, 0644, int64(len(content))
		header.ModTime = time.Unix(1700000000, 0)
		if format == tar.FormatPAX {
			header.ModTime = time.Unix(1700000000, 123456789)
		}
		must(to.WriteHeader(&header))
		_, err := to.Write(content)
		must(err)
	}
	for n := 0; n < 40; n++ {
		name := "d/file" + strings.Repeat("x", n)
		put(tar.Header{Name: name, Typeflag: tar.TypeReg}, bytes.Repeat([]byte{byte(n), 7, 9}, n*n*5))
	}
	for _, kind := range []byte{tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar, tar.TypeBlock} {
		put(tar.Header{Name: "d/kind" + string(kind), Linkname: "d/file", Typeflag: kind, Devmajor: 1, Devminor: 7}, nil)
	}
	if format != tar.FormatUSTAR {
		long := strings.Repeat("long/", 200)
		put(tar.Header{Name: long + "name", Typeflag: tar.TypeReg}, []byte("content"))
		put(tar.Header{Name: "link", Linkname: long, Typeflag: tar.TypeSymlink}, nil)
		put(tar.Header{Name: "owner", Uid: 1 << 30, Gid: 1 << 40, Typeflag: tar.TypeReg}, []byte("large numbers"))
	}
	if format == tar.FormatPAX {
		records := map[string]string{"SAPWOOD.own": strings.Repeat("value\n", 3000)}
		put(tar.Header{Name: "records", PAXRecords: records, Typeflag: tar.TypeReg}, []byte("with records"))
		put(tar.Header{Name: "d/ä世", Typeflag: tar.TypeReg}, []byte("not ASCII"))
	}
	must(to.Close())
}
