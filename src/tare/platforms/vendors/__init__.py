"""What drivers share whose hypervisor is reached by its maker's API, over a network.

A driver has options that subclass :class:`~tare.platforms.vendors.options.VendorOptions` (address,
credentials, private CA, callback), a :class:`~tare.platforms.vendors.session.Session` (log in, log
in again once, every error scrubbed of secrets) and a
:class:`~tare.platforms.vendors.virtual_machine.VirtualMachine` (state, power, removal, figures);
:class:`~tare.platforms.vendors.machine.VendorMachine` makes a machine of it, whose agent dials
back. A machine's start is always the same road:

1. ``async with doors.open(options.callback) as door`` listens where the guest can reach it (the
   platform holds one :class:`~tare.platforms.vendors.callback.Doors`);
2. ``with door.expected(spec.name) as caller`` makes a key for this machine alone;
3. ``configuration.picture(caller.configuration)`` is the bytes of an ISO 9660 image labelled
   TARE-CFG: a second CD, or a raw disk where a platform has no CDs; the key travels by that alone;
4. ``ledger.record(KIND, **options.way(), name=…)`` before anything is made, then the VM is made;
5. ``machine = VendorMachine(spec.name, vm, caller.channel, held)``, then
   ``await machine.bring_up()`` switches it on; ``vm.remove()`` marks the ledger's entry as done.

``extras.load`` imports a vendor's library only when it is used, ``secret`` keeps what is secret
out of every text, and ``tare.testing.dialling`` plays a guest's firmware where a simulator boots
nothing: it reads that image and starts ``tare-agent dial FILE``.
"""
