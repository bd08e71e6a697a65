# The scripts that carry programs to other machines source this file: it lists the libraries that a program loads.

# is_glibc LIBRARY: true for a part of glibc, which every machine has its own of.
is_glibc() {
  case "$1" in
    ld-linux*.so.* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libutil.so.* | \
      libresolv.so.* | libnss_*.so.* | libanl.so.* | linux-vdso.so.*) return 0 ;;
  esac
  return 1
}

# needed FILE: prints "NAME PATH" for each library that FILE loads, glibc's left out. Fails if one is missing: take its
# output by $(...), which passes that on.
needed() {
  ldd "$1" | while read -r library arrow path _; do
    is_glibc "$(basename "$library")" && continue
    [ "$arrow" = "=>" ] || continue
    [ "$path" = not ] && die "$1 needs $library, which is not there"
    printf '%s %s\n' "$library" "$path"
  done
}
