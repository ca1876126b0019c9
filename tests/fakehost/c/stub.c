/* A driver library that is only there to be found: the builder puts its names in place of the
 * marks. No libc, so that -m32 needs no 32-bit one. */
__attribute__((used)) static const char identity[128] =
	"@FAKEHOST-IDENTITY@.............................................................."
	"...........................";

const char *fakehost_identity(void)
{
	return identity;
}

#ifdef CUDA
int cuInit(unsigned flags)
{
	return flags ? 1 : 100;
}

int cuDriverGetVersion(int *version)
{
	*version = 12040;
	return 0;
}
#endif
