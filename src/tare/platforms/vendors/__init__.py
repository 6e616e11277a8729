"""What drivers share whose hypervisor is reached by its maker's API, over a network.

A driver subclasses :class:`~tare.platforms.vendors.platform.VendorPlatform`: it says how to log in,
what a look at the server must find, what boots, and how a virtual machine is made. It has options
that subclass :class:`~tare.platforms.vendors.options.VendorOptions` (address, credentials, private
CA, callback), a :class:`~tare.platforms.vendors.session.Session` (log in, log in again once, every
error scrubbed of secrets) and a
:class:`~tare.platforms.vendors.machine.VirtualMachine` (state, power, removal, figures).
A machine's start is always the same road, and ``VendorPlatform.start`` goes it:

1. it logs in;
2. ``self._doors.open(options.place)`` listens where the guest can reach it, and
   ``door.expected(spec.name)`` makes a key for this machine alone;
3. ``configuration.picture(caller.configuration)`` is the bytes of an ISO 9660 image labelled
   TARE-CFG: a second CD, or a raw disk where a platform has no CDs; the key travels by that alone;
4. the driver's ``make`` calls ``ledger.record(KIND, **options.way(), name=…)`` before anything is
   made, says by ``order.undo`` how it is taken back, and makes the VM;
5. a :class:`~tare.platforms.vendors.machine.VendorMachine` holds all that, and ``bring_up``
   switches it on; ``vm.remove()`` marks the ledger's entry as done.

``load_library`` imports a vendor's library only when it is used, ``secret`` keeps what is secret
out of every text, and ``tare.testing.dialling`` plays a guest's firmware where a simulator boots
nothing: it reads that image and starts ``tare-agent dial FILE``.
"""
